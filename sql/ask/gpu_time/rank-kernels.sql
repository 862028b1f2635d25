-- Question: Which kernels take the most GPU time on each rank?
-- Reading: As `top-kernels`, but per trace and in ns. `percent` is of the trace's kernel time, in which concurrent
-- kernels each count in full.
SELECT
    coalesce(t.job, t.file) AS job, t.rank, k.name, k.class, count(*) AS n,
    CAST(sum(k.duration_ns) AS BIGINT) AS duration_ns, median(k.duration_ns) AS median_ns,
    max(k.duration_ns) AS max_ns,
    100.0 * sum(k.duration_ns) / nullif(sum(sum(k.duration_ns)) OVER (PARTITION BY t.trace_id), 0) AS percent
FROM kernels AS k
JOIN traces AS t ON k.trace_id = t.trace_id
GROUP BY t.trace_id, coalesce(t.job, t.file), t.rank, k.name, k.class
ORDER BY sum(k.duration_ns) DESC, k.name, k.class, job, t.rank, t.trace_id
