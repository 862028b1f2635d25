-- Question: What bandwidth do collectives reach?
-- Reading: A lower bound from kernel times, because waiting for other ranks counts as transfer. `collectives` shows the
-- transfer alone if all ranks are in the lake.
SELECT
    coalesce(t.job, t.file) AS job,
    b.kind, b.bytes, b.group_size, b.spans_nodes, sum(b.n) AS n, round(sum(b.duration_ns) / 1e6, 2) AS total_ms,
    round(sum(b.busbw_lower_gigabytes_per_s * b.duration_ns) / sum(b.duration_ns), 2) AS bus_gigabytes_per_s,
    b.limit_gigabytes_per_s
FROM collective_bandwidth_by_size AS b
JOIN traces AS t ON b.trace_id = t.trace_id
GROUP BY
    coalesce(t.job, t.file), coalesce(t.job, t.trace_id), b.kind, b.bytes, b.group_size, b.spans_nodes,
    b.limit_gigabytes_per_s
ORDER BY
    sum(b.duration_ns) DESC, job, b.kind, b.bytes, b.group_size, b.spans_nodes, b.limit_gigabytes_per_s,
    coalesce(t.job, t.trace_id)
