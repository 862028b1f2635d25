-- Question: How do loading, computing and saving overlap in each step?
-- Reading: One row per step, longest first.
SELECT x.*, NULL AS exposed_wait_ns
FROM step_pipeline AS x
JOIN traces AS t ON x.trace_id = t.trace_id
ORDER BY x.duration_ns DESC, x.step
