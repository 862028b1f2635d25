-- Question: How many bytes did operators move, by their models and by hardware counters?
-- Reading: One row per operator, shapes and type.
SELECT x.*
FROM op_bytes_measured AS x
JOIN traces AS t ON x.trace_id = t.trace_id
ORDER BY x.bytes_modelled DESC NULLS LAST, x.op, x.dims
