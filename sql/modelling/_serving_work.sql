-- One row: a piece of GPU work that a step of a server launched.
-- How: the step that is open on the launching thread, else the one that began last in its process, if it is still open.
-- check: unique(trace_id, event_id)
WITH calls AS (
    SELECT DISTINCT k.trace_id, l.event_id, l.pid, l.tid, l.start_ns
    FROM kernels AS k
    JOIN events AS l ON l.trace_id = k.trace_id AND l.event_id = k.launch_event_id
    WHERE l.start_ns IS NOT NULL
),
served AS (
    SELECT DISTINCT trace_id FROM _serving_marks
),
marks AS (
    SELECT trace_id, event_id, pid, tid, start_ns, 0 AS turn, event_id AS mark_id, end_ns FROM _serving_marks
    UNION ALL
    SELECT l.trace_id, l.event_id, l.pid, l.tid, l.start_ns, 1, NULL, NULL
    FROM calls AS l
    JOIN served AS m ON m.trace_id = l.trace_id
),
-- The step that began last is the n-th of the thread, or of the process, where n is how many had begun by then.
numbered AS (
    SELECT
        trace_id, event_id, pid, tid, start_ns, mark_id, end_ns,
        count(mark_id) OVER own AS n_own, count(mark_id) OVER process AS n_other
    FROM marks
    WINDOW
        own AS (
            PARTITION BY trace_id, pid, tid ORDER BY start_ns, turn, event_id
            ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        ),
        process AS (
            PARTITION BY trace_id, pid ORDER BY start_ns, turn, event_id
            ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        )
),
owners AS (
    SELECT
        c.trace_id, c.event_id,
        CASE WHEN c.start_ns < o.end_ns THEN o.mark_id WHEN c.start_ns < p.end_ns THEN p.mark_id END AS mark_id
    FROM numbered AS c
    LEFT JOIN numbered AS o
        ON o.trace_id = c.trace_id AND o.pid IS NOT DISTINCT FROM c.pid AND o.tid IS NOT DISTINCT FROM c.tid
            AND o.n_own = c.n_own AND o.mark_id IS NOT NULL
    LEFT JOIN numbered AS p
        ON p.trace_id = c.trace_id AND p.pid IS NOT DISTINCT FROM c.pid AND p.n_other = c.n_other
            AND p.mark_id IS NOT NULL
    WHERE c.mark_id IS NULL
)
SELECT
    k.trace_id,  -- The trace.
    k.event_id,  -- The piece of GPU work in kernels.
    o.mark_id,  -- The step in _serving_marks.
    k.name,  -- Name of the work.
    k.cat,  -- kernel, gpu_memcpy or gpu_memset.
    k.start_ns,  -- Start, ns.
    k.end_ns,  -- End, ns.
    k.duration_ns  -- Duration, ns.
FROM kernels AS k
JOIN owners AS o ON o.trace_id = k.trace_id AND o.event_id = k.launch_event_id
WHERE o.mark_id IS NOT NULL
