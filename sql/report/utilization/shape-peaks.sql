-- Question: How much time do operators of each shape lose against the roofline?
-- Reading: One row per operator, input shapes and type, largest `above_ns` first: GPU time in excess of the roofline's
-- minimum at data sheet peaks.
SELECT x.*, x.gpu_ns - x.roofline_ns AS above_ns
FROM op_shape_utilization AS x
JOIN traces AS t ON x.trace_id = t.trace_id
WHERE x.peak_kind = 'datasheet'
ORDER BY above_ns DESC NULLS LAST, x.op, x.dims, x.dtype
