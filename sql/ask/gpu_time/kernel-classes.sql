-- Question: How does GPU time divide into computation, communication and memory traffic?
-- Reading: Kernel time, in which overlapping kernels each count in full. `gpu-idle` shows elapsed time.
SELECT
    coalesce(t.job, t.file) AS job, k.class, count(*) AS n, round(sum(k.duration_ns) / 1e6, 2) AS total_ms,
    round(
        100 * sum(k.duration_ns)
        / nullif(sum(sum(k.duration_ns)) OVER (PARTITION BY coalesce(t.job, t.trace_id)), 0), 1
    ) AS percent
FROM kernels AS k
JOIN traces AS t ON k.trace_id = t.trace_id
GROUP BY coalesce(t.job, t.file), coalesce(t.job, t.trace_id), k.class
ORDER BY job, sum(k.duration_ns) DESC, k.class, coalesce(t.job, t.trace_id)
