-- Question: Why does GPU work belong to no module or annotation?
-- Reading: It is not spread over the others: the answers of `modules` lack exactly this time.
SELECT coalesce(t.job, t.file) AS job, t.rank, u.reason, u.n, round(u.sum_ns / 1e6, 2) AS gpu_ms
FROM unattributed_gpu_work AS u
JOIN traces AS t ON u.trace_id = t.trace_id
ORDER BY u.sum_ns DESC, job, t.rank, u.reason, t.trace_id
