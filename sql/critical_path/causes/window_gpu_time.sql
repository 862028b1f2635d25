-- One row: a window with a covering path, and the time for which the GPU works in it.
-- How: the union of the window's GPU work, and the union of its computing kernels.
-- check: unique(trace_id, window_id)
WITH stepped AS (
    SELECT DISTINCT trace_id, 0 AS none FROM profiler_steps
)
SELECT
    w.trace_id,  -- The trace.
    w.window_id,  -- The window: full, or a step.
    w.path_end_ns - w.path_start_ns AS length_ns,  -- Its length, ns.
    b.busy_ns,  -- Time with GPU work, ns.
    b.computing_ns,  -- Time with computing kernels (neither copies nor communication), ns.
    coalesce(s.n_steps, t.none) AS n_steps,  -- Number of profiler steps inside it; NULL in a trace without steps.
    -- Time of these steps, ns: their lengths in step_lengths, clipped to the window; NULL without steps.
    s.steps_ns,
    s.median_step_ns  -- Median length of these steps, ns; NULL without steps.
FROM _window_work AS b
JOIN critical_path_windows AS w ON w.window_no = b.window_no
LEFT JOIN _window_steps AS s ON s.window_no = w.window_no
LEFT JOIN stepped AS t ON t.trace_id = w.trace_id
