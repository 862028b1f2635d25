-- Question: How long do the steps take, by rank?
-- Reading: One row per rank and device. `mean` is the time of all steps divided by their number. The first steps of a
-- capture are often slow (warm-up, compilation); they hardly affect the median. `host` is the mean length of the
-- annotations on the host, which is shorter if the host runs ahead of the GPU. `own_busy` is the share of the steps'
-- time in which the GPU ran work that they launched. `earlier` is the share in which the GPU ran only work launched
-- before the step, or work whose launch is not in the trace.
SELECT
    coalesce(t.job, t.file) AS job, t.rank, s.device, count(*) AS n_steps,
    round(avg(s.duration_ns) / 1e6, 2) AS mean_ms,
    round(avg(s.host_ns) / 1e6, 2) AS host_ms,
    round(median(s.duration_ns) / 1e6, 2) AS median_ms, round(max(s.duration_ns) / 1e6, 2) AS max_ms,
    round(100 * sum(s.own_busy_ns) / nullif(sum(s.duration_ns), 0), 1) AS own_busy_percent,
    round(100 * sum(s.busy_ns - s.own_busy_ns) / nullif(sum(s.duration_ns), 0), 1) AS earlier_percent
FROM step_times AS s
JOIN traces AS t ON s.trace_id = t.trace_id
GROUP BY coalesce(t.job, t.file), coalesce(t.job, t.trace_id), t.rank, s.device
ORDER BY mean_ms DESC, job, t.rank, s.device, coalesce(t.job, t.trace_id)
