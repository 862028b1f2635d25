-- Question: How much of the computing time runs on tensor cores?
-- Reading: Inferred from kernel names, not measured. NULL: the name does not identify it (Triton, for example). A
-- kernel on tensor cores may still use them poorly; see `tracelake ask mfu`.
-- Words: MFU
SELECT
    coalesce(t.job, t.file) AS job, t.rank,
    u.uses_tensor_cores, count(DISTINCT u.name) AS n_names, sum(u.n_kernels) AS n_kernels,
    round(sum(u.gpu_ns) / 1e6, 2) AS gpu_ms,
    round(
        100 * sum(u.gpu_ns)
        / nullif(sum(sum(u.gpu_ns)) OVER (PARTITION BY coalesce(t.job, t.trace_id), t.rank), 0), 1
    ) AS percent
FROM tensor_core_use AS u
JOIN traces AS t ON u.trace_id = t.trace_id
GROUP BY coalesce(t.job, t.file), coalesce(t.job, t.trace_id), t.rank, u.uses_tensor_cores
ORDER BY job, t.rank, sum(u.gpu_ns) DESC, u.uses_tensor_cores, coalesce(t.job, t.trace_id)
