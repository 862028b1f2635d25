-- One row: an interval in which a device was busy on any of its streams, with any work (scope all) or with work of one
-- class (counts_as in class_kinds).
-- How: sort by start. A new interval begins at a start later than all earlier ends (intervals that touch merge).
-- check: unique(trace_id, device, scope, start_ns)
WITH scoped AS (
    SELECT trace_id, device, 'all' AS scope, event_id, start_ns, greatest(end_ns, start_ns) AS end_ns FROM kernels
    UNION ALL
    SELECT k.trace_id, k.device, coalesce(n.counts_as, k.class), k.event_id, k.start_ns, greatest(k.end_ns, k.start_ns)
    FROM kernels AS k
    LEFT JOIN class_kinds AS n ON n.class = k.class
),
reached AS (
    SELECT
        *,
        max(end_ns) OVER (
            PARTITION BY trace_id, device, scope ORDER BY start_ns, event_id
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS reached_ns
    FROM scoped
),
numbered AS (
    SELECT
        *,
        sum(CASE WHEN reached_ns IS NULL OR start_ns > reached_ns THEN 1 ELSE 0 END) OVER (
            PARTITION BY trace_id, device, scope ORDER BY start_ns, event_id
            ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        ) AS stretch
    FROM reached
)
SELECT
    trace_id,  -- The trace.
    device,  -- Device.
    scope,  -- all, or the class that the kernels count as (counts_as in class_kinds).
    min(start_ns) AS start_ns,  -- Start of the interval, ns.
    max(end_ns) AS end_ns,  -- End of the interval, ns.
    count(*) AS n_kernels  -- Number of GPU activities in the interval.
FROM numbered
GROUP BY trace_id, device, scope, stretch
