-- Topic: Steps
-- Question: How long do the steps take, by rank?
-- Reading: The first steps of a capture are often slow (warm-up, compilation): compare medians. One row per rank and
-- device.
SELECT
    t.job, t.rank, s.device, count(*) AS n_steps, round(median(s.duration_ns) / 1e6, 2) AS median_ms,
    round(max(s.duration_ns) / 1e6, 2) AS max_ms,
    round(100 * sum(s.busy_ns) / nullif(sum(s.duration_ns), 0), 1) AS busy_percent
FROM step_times AS s
JOIN traces AS t ON s.trace_id = t.trace_id
GROUP BY t.job, t.rank, s.device
ORDER BY median_ms DESC, t.job, t.rank, s.device
