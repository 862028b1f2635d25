-- One row: an operator with an autograd sequence number.
-- How: a backward operator is one that names the thread of its forward (`Fwd thread id`, the profiler's own thread
-- number, not a tid).
-- check: unique(trace_id, event_id)
WITH numbered AS (
    SELECT
        trace_id, event_id, name, pid, tid, start_ns, start_ns + greatest(duration_ns, 0) AS end_ns,
        TRY_CAST(args ->> '$."Sequence number"' AS BIGINT) AS sequence,
        TRY_CAST(args ->> '$."Fwd thread id"' AS BIGINT) AS forward_thread
    FROM events
    WHERE cat = 'cpu_op' AND duration_ns IS NOT NULL AND start_ns IS NOT NULL AND contains(args, '"Sequence number"')
)
SELECT
    trace_id,  -- The trace.
    event_id,  -- Position in traceEvents.
    pid,  -- Process.
    tid,  -- Thread.
    start_ns,  -- Start, ns.
    end_ns,  -- End, ns.
    sequence,  -- Sequence number; a backward operator has that of its forward. Several operators and threads share one.
    -- The profiler's number of the forward's thread; NULL for a forward operator.
    nullif(forward_thread, 0) AS forward_thread,
    -- The engine's event around a backward operator.
    starts_with(name, 'autograd::engine::evaluate_function') AS is_wrapper
FROM numbered
WHERE sequence >= 0
