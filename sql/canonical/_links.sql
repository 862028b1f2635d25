-- One row: a GPU activity or GPU-side wait, and the CPU call with the same correlation id, in a profile.
-- How: group both sides by correlation id. HTA keeps the last event on each side, default keeps every kernel and its
-- launch.
-- Source: HTA's index_correlation (2.3); in default, correlation 0 means no correlation.
WITH correlated AS (
    SELECT
        p.trace_profile_id, p.one_kernel_per_launch, e.event_id, e.correlation,
        CASE
            WHEN p.side_by_stream_argument
                THEN coalesce(e.stream, -1) >= 0 OR e.name IN ('Event Sync', 'Context Sync')
            ELSE coalesce(s.side, 'cpu') IN ('gpu', 'sync')
        END AS is_gpu,
        -- A wait within the call that launched a copy has the call's correlation id on XPU.
        NOT p.side_by_stream_argument AND coalesce(s.is_operator, FALSE) AND e.cat <> 'xpu_sync' AS is_call
    FROM events AS e
    JOIN _profiles AS p ON p.trace_id = e.trace_id
    LEFT JOIN category_sides AS s ON s.cat = e.cat
    WHERE
        e.duration_ns IS NOT NULL AND e.cat IS NOT NULL AND coalesce(s.side, 'cpu') <> 'none'
        AND e.correlation >= CASE WHEN p.side_by_stream_argument THEN 0 ELSE 1 END
),
both_sides AS (
    SELECT
        trace_profile_id, correlation,
        max(event_id) FILTER (WHERE NOT is_gpu AND (one_kernel_per_launch OR is_call)) AS launch_event_id,
        max(event_id) FILTER (WHERE is_gpu) AS gpu_event_id
    FROM correlated
    GROUP BY trace_profile_id, correlation
)
SELECT
    g.trace_profile_id,  -- The trace as a profile sees it.
    g.event_id AS gpu_event_id,  -- The GPU side.
    b.launch_event_id,  -- The CPU call.
    g.correlation,  -- Their correlation id.
    -- The profile links this launch to this work.
    g.event_id = b.gpu_event_id OR NOT g.one_kernel_per_launch AS is_known
FROM correlated AS g
JOIN both_sides AS b ON b.trace_profile_id = g.trace_profile_id AND b.correlation = g.correlation
WHERE g.is_gpu AND b.launch_event_id IS NOT NULL
