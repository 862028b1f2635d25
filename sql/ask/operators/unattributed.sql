-- Question: Why does GPU work belong to no module or annotation?
-- Reading: This time is not distributed over modules. `modules` has no row for work without a launch or outside of all
-- spans (except in phase `replay`). Work of a backward operator whose forward is not in the trace is there in steps,
-- annotations and recomputed modules only. Work launched in a step, but in no module or annotation, is not here:
-- `modules` has it in its step.
SELECT coalesce(t.job, t.file) AS job, t.rank, u.reason, u.n, round(u.sum_ns / 1e6, 2) AS gpu_ms
FROM unattributed_gpu_work AS u
JOIN traces AS t ON u.trace_id = t.trace_id
ORDER BY u.sum_ns DESC, job, t.rank, u.reason, t.trace_id
