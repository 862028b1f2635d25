-- Topic: Communication
-- Question: Which bandwidth do collectives reach?
-- Reading: A lower bound from kernel times: waiting for other ranks counts as transfer. `collectives` has the transfer
-- alone, where all ranks are in the lake.
SELECT
    t.job, b.kind, b.bytes, b.group_size, b.spans_nodes, sum(b.n) AS n, round(sum(b.dur_ns) / 1e6, 2) AS total_ms,
    round(sum(b.busbw_lower_gbps * b.dur_ns) / sum(b.dur_ns), 2) AS bus_gbps, any_value(b.limit_gbps) AS limit_gbps
FROM collective_bandwidth_by_size AS b
JOIN traces AS t ON b.trace_id = t.trace_id
GROUP BY t.job, b.kind, b.bytes, b.group_size, b.spans_nodes
ORDER BY sum(b.dur_ns) DESC, t.job, b.kind, b.bytes, b.group_size
