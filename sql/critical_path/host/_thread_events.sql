-- One row: a CPU event of a window with a covering path, with its thread and the roles of the thread.
SELECT
    c.window_no,  -- The window.
    c.thread_id,  -- The thread.
    c.event_id,  -- The event.
    -- Start, relative to the start of the window, ns; negative if it began before the window.
    c.start_ns - w.start_ns AS at_ns,
    c.duration_ns,  -- Duration, ns.
    c.is_operator,  -- An operator or a call; else an annotation or a Python function.
    coalesce(r.process_no, 0) AS process_no,  -- The thread's process within the trace.
    coalesce(r.is_working, FALSE) AS is_working,  -- The thread works: events of the thread may end the window.
    coalesce(r.only_polls, FALSE) AS only_polls,  -- Its calls only ask whether GPU work has ended.
    coalesce(r.is_autograd, FALSE) AS is_autograd,  -- A thread of the autograd engine.
    coalesce(r.calls_backward, FALSE) AS calls_backward,  -- Arrows lead from its operators to backward operators.
    -- The thread runs collectives that another thread has begun.
    coalesce(r.runs_collectives, FALSE) AS runs_collectives
FROM _clip AS c
JOIN _asked_windows AS w ON w.window_no = c.window_no
LEFT JOIN _thread_roles AS r ON r.trace_profile_id = w.trace_profile_id AND r.thread_id = c.thread_id
WHERE c.side = 'cpu' AND w.covers_window
