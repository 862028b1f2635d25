-- Question: How long does launched work wait before it starts?
-- Reading: If all delays are small and the GPU is idle, the host is too slow. If the delay is large, the GPU is behind,
-- as it should be.
-- Words: launch bound, host bound
SELECT
    coalesce(t.job, t.file) AS job, t.rank,
    l.name, count(*) AS n, round(median(l.duration_ns) / 1e3, 1) AS median_call_us,
    round(median(l.launch_delay_ns) / 1e3, 1) AS median_delay_us, round(max(l.launch_delay_ns) / 1e3, 1) AS max_delay_us
FROM launches AS l
JOIN traces AS t ON l.trace_id = t.trace_id
GROUP BY coalesce(t.job, t.file), coalesce(t.job, t.trace_id), t.rank, l.name
ORDER BY n DESC, job, t.rank, l.name, coalesce(t.job, t.trace_id)
