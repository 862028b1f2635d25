-- One row: a metric of the GPU while a kernel ran, with at least one sample of gpu_metrics during the kernel.
-- How: samples after the kernel's start and until its end, from running sums over samples, starts and ends in time
-- order. The samples include the effect of concurrent kernels.
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
    device,  -- Device of the kernel.
    metric,  -- Metric, as in gpu_metrics.
    n AS n_samples,  -- Samples while the kernel ran.
    total,  -- Sum of the samples' values, for means over several kernels.
    -- Mean of the samples; NULL for fewer than threshold('metric_samples') samples.
    CASE WHEN n >= threshold('metric_samples') THEN total / n END AS mean
FROM summed
WHERE n > 0
