-- One row: a window that the critical path covers, and how long the GPU works in it.
-- How: the union of the window's GPU work, and of its kernels that compute.
-- check: unique(trace_id, window_id)
SELECT
    w.trace_id,  -- The trace.
    w.window_id,  -- The window: full, or a step.
    w.path_end_ns - w.path_start_ns AS length_ns,  -- Its length, ns.
    b.busy_ns,  -- Time in which GPU work ran, ns.
    b.computing_ns,  -- Time in which kernels ran that compute (neither copies nor communication), ns.
    coalesce(s.n_steps, 0) AS n_steps,  -- Profiler steps that lie in it.
    -- Time of these steps, from the start of the first to the end of the last, ns; NULL without steps.
    s.end_ns - s.start_ns AS steps_ns
FROM _window_work AS b
JOIN critical_path_windows AS w ON w.window_no = b.window_no
LEFT JOIN _window_steps AS s ON s.window_no = w.window_no
