-- One row: a metric of the GPU while a kernel ran, where at least one sample of gpu_metrics fell into it.
-- How: samples after its start and until its end, from running sums over samples, starts and ends in the order of time.
-- Kernels that ran concurrently count, too.
-- scope: lake
-- check: unique(trace_id, event_id, metric)
WITH metrics AS (
    SELECT DISTINCT trace_id, device, metric FROM gpu_metrics
),
points AS (
    SELECT trace_id, device, metric, at_ns, 0 AS place, NULL AS event_id, 1 AS n, value
    FROM gpu_metrics
    WHERE value IS NOT NULL AND at_ns IS NOT NULL
    UNION ALL
    SELECT k.trace_id, k.device, m.metric, k.start_ns, 1, k.event_id, 0, 0
    FROM kernels AS k
    JOIN metrics AS m ON m.trace_id = k.trace_id AND m.device = k.device
    UNION ALL
    SELECT k.trace_id, k.device, m.metric, k.end_ns, 2, k.event_id, 0, 0
    FROM kernels AS k
    JOIN metrics AS m ON m.trace_id = k.trace_id AND m.device = k.device
),
running AS (
    SELECT
        trace_id, device, metric, event_id, CASE place WHEN 1 THEN -1 ELSE 1 END AS sign,
        sum(n) OVER until_here AS n, sum(value) OVER until_here AS total
    FROM points
    WINDOW until_here AS (
        PARTITION BY trace_id, device, metric
        ORDER BY at_ns, place ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    )
),
summed AS (
    SELECT trace_id, device, metric, event_id, TRY_CAST(sum(sign * n) AS BIGINT) AS n, sum(sign * total) AS total
    FROM running
    WHERE event_id IS NOT NULL
    GROUP BY trace_id, device, metric, event_id
)
SELECT
    trace_id,  -- The trace.
    event_id,  -- The kernel, in kernels.
    device,  -- Its device.
    metric,  -- Metric, as in gpu_metrics.
    n AS n_samples,  -- Samples while it ran.
    total,  -- Sum of their values, for means over several kernels.
    -- Their mean; NULL where fewer than threshold('metric_samples') samples fell into it.
    CASE WHEN n >= threshold('metric_samples') THEN total / n END AS mean
FROM summed
WHERE n > 0
