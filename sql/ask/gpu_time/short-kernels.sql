-- Question: How much GPU work is too short to be worth a launch?
-- Reading: Kernels under 10 us. If they are most of `n` and the GPU idles, fuse them or use CUDA graphs. Short kernels
-- alone are not a problem.
-- Words: launch bound, CUDA graphs
SELECT
    coalesce(t.job, t.file) AS job, t.rank, count(*) AS n, count(*) FILTER (WHERE k.duration_ns < 10000) AS n_short,
    round(100 * count(*) FILTER (WHERE k.duration_ns < 10000) / count(*), 1) AS percent_short,
    round(sum(CASE WHEN k.duration_ns < 10000 THEN k.duration_ns ELSE 0 END) / 1e6, 2) AS short_ms
FROM kernels AS k
JOIN traces AS t ON k.trace_id = t.trace_id
GROUP BY coalesce(t.job, t.file), coalesce(t.job, t.trace_id), t.rank
ORDER BY n_short DESC, job, t.rank, coalesce(t.job, t.trace_id)
