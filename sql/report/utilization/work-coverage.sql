-- Question: How much of the GPU time do the models of operators cover?
-- Reading: One row per trace.
SELECT x.*
FROM op_work_coverage AS x
JOIN traces AS t ON x.trace_id = t.trace_id
ORDER BY x.trace_id
