-- Question: Do the host and the GPU work at the same time?
-- Reading: `step` NULL is the whole trace. The host is busy while a thread is in an operator or runtime call that does
-- not wait for the GPU; Python between operators does not count. `only_host` is host work while no GPU ran. A step with
-- much of it is host bound.
-- Words: launch bound, host bound
SELECT
    coalesce(t.job, t.file) AS job, t.rank, o.step, round(o.duration_ns / 1e6, 2) AS ms,
    round(100 * o.both_busy_ns / nullif(o.duration_ns, 0), 1) AS both_busy_percent,
    round(100 * o.only_host_ns / nullif(o.duration_ns, 0), 1) AS only_host_percent,
    round(100 * o.only_gpu_ns / nullif(o.duration_ns, 0), 1) AS only_gpu_percent,
    round(100 * o.neither_ns / nullif(o.duration_ns, 0), 1) AS neither_percent
FROM host_gpu_overlap AS o
JOIN traces AS t ON o.trace_id = t.trace_id
ORDER BY job, t.rank, t.trace_id, o.step NULLS FIRST
