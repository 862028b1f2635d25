-- Question: Why does GPU work belong to no module or annotation?
-- Reading: This time is not distributed over modules, so it is the time missing from `modules`, apart from what a
-- step has.
SELECT coalesce(t.job, t.file) AS job, t.rank, u.reason, u.n, round(u.sum_ns / 1e6, 2) AS gpu_ms
FROM unattributed_gpu_work AS u
JOIN traces AS t ON u.trace_id = t.trace_id
ORDER BY u.sum_ns DESC, job, t.rank, u.reason, t.trace_id
