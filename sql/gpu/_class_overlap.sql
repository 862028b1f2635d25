-- One row: an interval between two changes of the classes that a device runs, with the number of open merged intervals
-- of each class.
-- How: running sums over time of +1 at the start and -1 at the end of every merged interval of a class.
WITH changes AS (
    SELECT trace_id, device, scope, start_ns, 1 AS change FROM merged_intervals WHERE scope <> 'all'
    UNION ALL
    SELECT trace_id, device, scope, end_ns, -1 FROM merged_intervals WHERE scope <> 'all'
),
summed AS (
    SELECT
        trace_id, device, start_ns,
        sum(CASE WHEN scope = 'COMPUTATION' THEN change ELSE 0 END) AS compute,
        sum(CASE WHEN scope = 'COMMUNICATION' THEN change ELSE 0 END) AS communication,
        sum(CASE WHEN scope = 'MEMORY' THEN change ELSE 0 END) AS memory
    FROM changes
    GROUP BY trace_id, device, start_ns
)
SELECT
    trace_id,  -- The trace.
    device,  -- Device.
    start_ns,  -- Start of the interval, ns.
    -- End of the interval, ns; NULL for the last interval.
    lead(start_ns) OVER (PARTITION BY trace_id, device ORDER BY start_ns) AS end_ns,
    -- 1 while computing.
    sum(compute) OVER (
        PARTITION BY trace_id, device ORDER BY start_ns ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS n_compute,
    -- 1 while communicating.
    sum(communication) OVER (
        PARTITION BY trace_id, device ORDER BY start_ns ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS n_communication,
    -- 1 while copying or setting memory.
    sum(memory) OVER (
        PARTITION BY trace_id, device ORDER BY start_ns ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS n_memory
FROM summed
