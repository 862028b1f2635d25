-- Question: Which kernels take the most GPU time?
-- Reading: Concurrent kernels each count in full, so the shares are of the job's kernel time, not of the span. A kernel
-- with a large `max` and a small `median` waits (collectives) or has several shapes.
SELECT
    coalesce(t.job, t.file) AS job, k.name, any_value(k.class) AS class, count(*) AS n,
    round(sum(k.duration_ns) / 1e6, 2) AS total_ms,
    round(
        100 * sum(k.duration_ns)
        / nullif(sum(sum(k.duration_ns)) OVER (PARTITION BY coalesce(t.job, t.trace_id)), 0), 1
    ) AS percent,
    round(median(k.duration_ns) / 1e3, 1) AS median_us, round(max(k.duration_ns) / 1e3, 1) AS max_us
FROM kernels AS k
JOIN traces AS t ON k.trace_id = t.trace_id
GROUP BY coalesce(t.job, t.file), coalesce(t.job, t.trace_id), k.name
ORDER BY sum(k.duration_ns) DESC, k.name, job, coalesce(t.job, t.trace_id)
