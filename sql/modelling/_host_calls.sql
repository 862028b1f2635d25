-- One row: a stretch in which a thread was inside an operator or runtime call (call), or inside a call that waits for
-- the GPU (wait).
-- How: of calls inside one another the outermost has the stretch; where two cross, the later one has the rest.
WITH calls AS (
    SELECT
        e.trace_id, t.thread_id, e.event_id, e.start_ns, e.end_ns, r.name IS NOT NULL AS is_wait
    FROM events AS e
    JOIN category_sides AS s ON s.cat = e.cat AND s.side = 'cpu' AND s.is_operator
    JOIN threads AS t ON t.trace_id = e.trace_id AND t.pid = e.pid AND t.tid = e.tid
    LEFT JOIN call_roles AS r ON r.profile = 'default' AND r.role = 'blocking' AND r.name = e.name
    WHERE e.duration_ns > 0 AND e.start_ns IS NOT NULL
),
kinds AS (
    SELECT trace_id, thread_id, 'call' AS kind, event_id, start_ns, end_ns FROM calls
    UNION ALL
    SELECT trace_id, thread_id, 'wait', event_id, start_ns, end_ns FROM calls WHERE is_wait
),
reached AS (
    SELECT
        trace_id, thread_id, kind, event_id, start_ns, end_ns,
        max(end_ns) OVER (
            PARTITION BY trace_id, thread_id, kind ORDER BY start_ns, end_ns DESC, event_id
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS reached_ns
    FROM kinds
)
SELECT
    trace_id,  -- The trace.
    thread_id,  -- The thread in threads.
    kind,  -- call or wait.
    event_id,  -- The operator or call.
    greatest(start_ns, coalesce(reached_ns, start_ns)) AS start_ns,  -- Start of the stretch, ns.
    end_ns  -- End of the stretch, ns.
FROM reached
WHERE reached_ns IS NULL OR end_ns > reached_ns
