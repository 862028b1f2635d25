-- Question: Why does GPU work belong to no span?
-- Reading: One row per reason.
SELECT x.reason, x.n, x.sum_ns
FROM unattributed_gpu_work AS x
JOIN traces AS t ON x.trace_id = t.trace_id
ORDER BY x.sum_ns DESC, x.reason
