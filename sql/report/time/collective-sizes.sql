-- Question: What bandwidth do the collectives of each kind and size reach?
-- Reading: One row per kind and size, most time beyond the ideal first. If the ideal is unknown, all of the time
-- counts.
SELECT x.*
FROM collective_bandwidth_by_size AS x
JOIN traces AS t ON x.trace_id = t.trace_id
ORDER BY x.duration_ns - coalesce(x.ideal_ns, 0) DESC, x.trace_id, x.kind, x.bytes, x.group_size, x.spans_nodes
