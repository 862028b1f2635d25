-- One row: a metric of the GPU while the work of a span ran in a phase, with at least one sample during one of its
-- kernels.
-- How: the samples of kernel_gpu_metrics over the kernels of span_gpu_work. A sample during two kernels, on two
-- streams, counts for each.
-- scope: lake
-- check: unique(trace_id, span_id, phase, metric)
WITH sampled AS (
    SELECT
        w.trace_id, w.span_id, w.phase, m.metric, count(*) AS n_kernels_sampled, sum(k.duration_ns) AS sampled_ns,
        sum(m.n_samples) AS n_samples, sum(m.total) AS total
    FROM span_gpu_work AS w
    JOIN kernel_gpu_metrics AS m ON m.trace_id = w.trace_id AND m.event_id = w.event_id
    JOIN kernels AS k ON k.trace_id = w.trace_id AND k.event_id = w.event_id
    GROUP BY w.trace_id, w.span_id, w.phase, m.metric
)
SELECT
    s.trace_id,  -- The trace.
    s.span_id,  -- The span.
    s.phase,  -- fwd, bwd, recompute, bwd_direct or window, as in span_gpu_work. Never add up nested spans.
    s.metric,  -- Metric, as in gpu_metrics.
    t.n AS n_kernels,  -- GPU activities of the span.
    s.n_kernels_sampled,  -- GPU activities with a sample.
    -- Share of these activities in the summed duration: read the mean with this in mind.
    CAST(s.sampled_ns AS DOUBLE) / nullif(t.sum_ns, 0) AS coverage,
    TRY_CAST(s.n_samples AS BIGINT) AS n_samples,  -- Samples while the work of the span ran.
    -- Mean of the samples; NULL for fewer than threshold('metric_samples').
    CASE WHEN s.n_samples >= threshold('metric_samples') THEN s.total / s.n_samples END AS mean
FROM sampled AS s
JOIN span_kernels AS t ON t.trace_id = s.trace_id AND t.span_id = s.span_id AND t.phase = s.phase
