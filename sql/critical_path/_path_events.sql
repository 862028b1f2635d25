-- One row: an event of a window with what the path through several ranks needs to know: where it ran, and what it may
-- have waited for.
-- How: the operators and GPU work of _clip, with their thread's process.
WITH processes AS (
    SELECT trace_id, thread_id, dense_rank() OVER (PARTITION BY trace_id ORDER BY pid) AS process_no
    FROM threads
)
SELECT
    c.window_no,  -- The window.
    c.event_id,  -- The event.
    c.start_ns,  -- Start, ns.
    c.start_ns + c.duration_ns AS end_ns,  -- End, ns.
    c.side = 'gpu' AS is_gpu,  -- TRUE: GPU work; FALSE: a CPU event.
    -- Its stream, or its CPU thread.
    coalesce(CASE WHEN c.side = 'gpu' THEN c.stream_key ELSE c.thread_id END, -1) AS lane,
    coalesce(p.process_no, -1) AS process,  -- Number of a CPU event's process within the trace.
    coalesce(c.launch_event_id, -1) AS launch_event_id,  -- The call that launched GPU work; -1 where none is known.
    c.is_blocking,  -- A call that waits for the GPU.
    c.side = 'gpu' AND e.cat = 'gpu_memcpy' AS is_copy  -- A copy on the GPU.
FROM _clip AS c
JOIN critical_path_windows AS w ON w.window_no = c.window_no
JOIN events AS e ON e.trace_id = w.trace_id AND e.event_id = c.event_id
LEFT JOIN processes AS p ON p.trace_id = w.trace_id AND p.thread_id = c.thread_id
WHERE c.is_operator OR c.side = 'gpu'
