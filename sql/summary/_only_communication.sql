-- One row: a stretch of a trace in which a device ran communication and no computation.
-- How: starts and ends of both as running sums over each device; stretches of several devices that overlap count once.
-- Computation counts only where there is communication around it, so a trace without collectives costs nothing.
WITH communication AS (
    SELECT
        e.trace_id, coalesce(e.device, TRY_CAST(e.pid AS BIGINT), 0) AS device, e.start_ns, e.end_ns
    FROM events AS e
    JOIN category_sides AS s ON s.cat = e.cat AND s.side = 'gpu'
    JOIN _kernel_class AS k
        ON k.cat = e.cat AND k.name = e.name AND k.profile = 'default' AND k.class = 'COMMUNICATION'
    WHERE e.duration_ns > 0 AND e.start_ns IS NOT NULL
),
reaches AS (
    SELECT trace_id, device, min(start_ns) AS start_ns, max(end_ns) AS end_ns
    FROM communication
    GROUP BY trace_id, device
),
computation AS (
    SELECT r.trace_id, r.device, e.start_ns, e.end_ns
    FROM events AS e
    JOIN category_sides AS s ON s.cat = e.cat AND s.side = 'gpu'
    JOIN _kernel_class AS k
        ON k.cat = e.cat AND k.name = e.name AND k.profile = 'default'
    JOIN class_kinds AS n ON n.class = k.class AND n.counts_as = 'COMPUTATION'
    JOIN reaches AS r
        ON r.trace_id = e.trace_id AND r.device = coalesce(e.device, TRY_CAST(e.pid AS BIGINT), 0)
            AND r.start_ns < e.end_ns AND r.end_ns > e.start_ns
    WHERE e.duration_ns > 0 AND e.start_ns IS NOT NULL
),
marks AS (
    SELECT trace_id, device, start_ns AS at_ns, 1 AS communicating, 0 AS computing FROM communication
    UNION ALL
    SELECT trace_id, device, end_ns, -1, 0 FROM communication
    UNION ALL
    SELECT trace_id, device, start_ns, 0, 1 FROM computation
    UNION ALL
    SELECT trace_id, device, end_ns, 0, -1 FROM computation
),
-- The order of marks at one time does not matter: nothing lies between them.
swept AS (
    SELECT
        trace_id, at_ns AS start_ns, lead(at_ns) OVER in_time AS end_ns,
        sum(communicating) OVER (in_time ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS n_communicating,
        sum(computing) OVER (in_time ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS n_computing
    FROM marks
    WINDOW in_time AS (PARTITION BY trace_id, device ORDER BY at_ns)
),
reached AS (
    SELECT
        trace_id, start_ns, end_ns,
        max(end_ns) OVER (
            PARTITION BY trace_id ORDER BY start_ns, end_ns ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS reached_ns
    FROM swept
    WHERE n_communicating > 0 AND n_computing = 0 AND end_ns > start_ns
)
SELECT
    trace_id,  -- The trace.
    greatest(start_ns, coalesce(reached_ns, start_ns)) AS start_ns,  -- Start of the stretch, ns.
    end_ns  -- End of the stretch, ns.
FROM reached
WHERE reached_ns IS NULL OR end_ns > reached_ns
