-- One row: a piece of GPU work (or a GPU-side wait) and the CPU call with its correlation id, in a profile.
-- How: group both sides by correlation; HTA keeps the last event of either side, default keeps every kernel and its launch.
-- Source: hta-semantics 2.3 (index_correlation); correlation 0 is no correlation in default.
WITH correlated AS (
    SELECT
        p.profile, p.one_kernel_per_launch, e.trace_id, e.event_id, e.correlation, e.ts_ns,
        CASE
            WHEN p.side_by_stream_argument
                THEN coalesce(e.stream, -1) >= 0 OR e.name IN ('Event Sync', 'Context Sync')
            ELSE coalesce(s.side, 'cpu') IN ('gpu', 'sync')
        END AS is_gpu,
        NOT p.side_by_stream_argument AND coalesce(s.is_operator, FALSE) AS is_call
    FROM events AS e
    JOIN _profiles AS p ON p.trace_id = e.trace_id
    LEFT JOIN category_sides AS s ON s.cat = e.cat
    WHERE
        e.dur_ns IS NOT NULL AND e.cat IS NOT NULL AND coalesce(s.side, 'cpu') <> 'none'
        AND e.correlation >= CASE WHEN p.side_by_stream_argument THEN 0 ELSE 1 END
),
calls AS (
    SELECT trace_id, profile, correlation, max(event_id) AS launch_event_id, count(*) AS n_calls
    FROM correlated
    WHERE NOT is_gpu AND (one_kernel_per_launch OR is_call)
    GROUP BY trace_id, profile, correlation
),
last_work AS (
    SELECT trace_id, profile, correlation, max(event_id) AS gpu_event_id
    FROM correlated
    WHERE is_gpu
    GROUP BY trace_id, profile, correlation
)
SELECT
    g.trace_id,  -- The trace.
    g.profile,  -- hta or default.
    g.event_id AS gpu_event_id,  -- The GPU side.
    c.launch_event_id,  -- The CPU call.
    g.correlation,  -- Their correlation id.
    g.event_id = w.gpu_event_id AS is_last,  -- The last work of its launch in file order.
    c.n_calls  -- CPU calls with this correlation id.
FROM correlated AS g
JOIN calls AS c ON c.trace_id = g.trace_id AND c.profile = g.profile AND c.correlation = g.correlation
JOIN last_work AS w ON w.trace_id = g.trace_id AND w.profile = g.profile AND w.correlation = g.correlation
WHERE g.is_gpu
