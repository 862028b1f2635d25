-- model: _autograd_ops
-- One row: an operator with an autograd sequence number.
-- How: a backward operator records the thread of its forward operator (`Fwd thread id`, which is the profiler's own
-- thread number, not a tid).
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
    -- Sequence number; a backward operator has its forward's. Several operators and threads may share a number.
    sequence,
    -- The profiler's number of the forward operator's thread; NULL for a forward operator.
    nullif(forward_thread, 0) AS forward_thread,
    -- True for the engine's event around a backward operator.
    starts_with(name, 'autograd::engine::evaluate_function') AS is_wrapper
FROM numbered
WHERE sequence >= 0;

-- model: backward_links
-- One row: a backward operator and the forward operator whose derivative it computes.
-- How: the profiler's fwdbwd arrow determines the forward operator. Without an arrow, it is the last forward operator
-- with the same sequence number that started before the backward operator, on the thread that arrows name. Several
-- forward operators share a number, and numbers repeat, so the first such operator would be wrong for most pairs.
-- check: unique(trace_id, backward_event_id)
WITH arrows AS (
    SELECT
        f.trace_id, f.event_id AS arrow_id, f.pid, f.tid, f.start_ns, s.pid AS from_pid, s.tid AS from_tid,
        s.start_ns AS from_ns
    FROM events AS f
    JOIN events AS s
        ON s.trace_id = f.trace_id
            AND s.flow_id = f.flow_id
            AND s.cat = 'fwdbwd'
            AND s.ph = 's'
            AND s.start_ns <= f.start_ns
    WHERE f.cat = 'fwdbwd' AND f.ph = 'f'
    QUALIFY row_number() OVER (PARTITION BY f.trace_id, f.event_id ORDER BY s.start_ns DESC, s.event_id) = 1
),
-- Thread and start identify the operator of an arrow. Among operators that start together, the arrow belongs to the
-- deepest.
heads AS (
    SELECT a.trace_id, a.from_pid, a.from_tid, a.from_ns, b.event_id AS backward_event_id, b.sequence, b.forward_thread
    FROM arrows AS a
    JOIN _autograd_ops AS b
        ON b.trace_id = a.trace_id AND b.pid = a.pid AND b.tid = a.tid AND b.start_ns = a.start_ns
    WHERE b.forward_thread IS NOT NULL
    QUALIFY
        row_number() OVER (
            PARTITION BY a.trace_id, a.arrow_id
            ORDER BY CASE WHEN b.is_wrapper THEN 1 ELSE 0 END, b.end_ns, b.event_id DESC
        ) = 1
),
flows AS (
    SELECT h.trace_id, h.backward_event_id, h.forward_thread, f.event_id AS forward_event_id, f.pid, f.tid
    FROM heads AS h
    JOIN _autograd_ops AS f
        ON f.trace_id = h.trace_id AND f.pid = h.from_pid AND f.tid = h.from_tid AND f.start_ns = h.from_ns
    WHERE f.forward_thread IS NULL
    QUALIFY
        row_number() OVER (
            PARTITION BY h.trace_id, h.backward_event_id
            ORDER BY CASE WHEN f.sequence = h.sequence THEN 0 ELSE 1 END, f.end_ns, f.event_id DESC
        ) = 1
),
forward_threads AS (
    SELECT trace_id, forward_thread, pid, tid
    FROM flows
    GROUP BY trace_id, forward_thread, pid, tid
    QUALIFY row_number() OVER (PARTITION BY trace_id, pid, forward_thread ORDER BY count(*) DESC, tid) = 1
),
by_number AS (
    SELECT b.trace_id, b.event_id AS backward_event_id, f.event_id AS forward_event_id
    FROM _autograd_ops AS b
    LEFT JOIN flows AS known ON known.trace_id = b.trace_id AND known.backward_event_id = b.event_id
    LEFT JOIN forward_threads AS t
        ON t.trace_id = b.trace_id AND t.pid = b.pid AND t.forward_thread = b.forward_thread
    JOIN _autograd_ops AS f ON f.trace_id = b.trace_id AND f.pid = b.pid AND f.sequence = b.sequence
    WHERE
        b.forward_thread IS NOT NULL AND known.backward_event_id IS NULL
        AND f.forward_thread IS NULL AND f.start_ns <= b.start_ns
        AND (f.tid = t.tid OR t.tid IS NULL AND f.tid <> b.tid)
    QUALIFY row_number() OVER (PARTITION BY b.trace_id, b.event_id ORDER BY f.start_ns DESC, f.end_ns, f.event_id DESC)
        = 1
)
SELECT
    b.trace_id,  -- The trace.
    b.event_id AS backward_event_id,  -- The backward operator.
    -- The forward operator; NULL if it is not in the trace.
    coalesce(f.forward_event_id, n.forward_event_id) AS forward_event_id,
    CASE
        WHEN f.forward_event_id IS NOT NULL THEN 'flow'
        WHEN n.forward_event_id IS NOT NULL THEN 'sequence'
    END AS how  -- flow (the profiler's arrow) or sequence (the sequence number); NULL without a forward operator.
FROM _autograd_ops AS b
LEFT JOIN flows AS f ON f.trace_id = b.trace_id AND f.backward_event_id = b.event_id
LEFT JOIN by_number AS n ON n.trace_id = b.trace_id AND n.backward_event_id = b.event_id
WHERE b.forward_thread IS NOT NULL;
