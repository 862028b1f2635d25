-- Question: Which operators are called most, and with which shapes?
-- Reading: CPU time, including nested operators. Many calls with one small shape are candidates for batching.
SELECT
    coalesce(t.job, t.file) AS job, o.name, o.input_dims, sum(o.n) AS n, round(sum(o.duration_ns) / 1e6, 2) AS total_ms,
    round(sum(o.duration_ns) / sum(o.n) / 1e3, 1) AS mean_us, round(max(o.max_ns) / 1e3, 1) AS max_us
FROM ops_by_shape AS o
JOIN traces AS t ON o.trace_id = t.trace_id
WHERE o.cat = 'cpu_op'
GROUP BY coalesce(t.job, t.file), coalesce(t.job, t.trace_id), o.name, o.input_dims
ORDER BY sum(o.duration_ns) DESC, o.name, o.input_dims, job, coalesce(t.job, t.trace_id)
