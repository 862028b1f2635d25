-- Topic: Operators and modules
-- Question: How much of the hardware's peak do operators reach?
-- Reading: One row per family and type. Never read `mfu` without `suspect`: a share above 100 % means that the device,
-- the type or the shapes are not what they seem.
SELECT
    t.job, t.rank, f.family, f.dtype, f.peak_kind, f.n_ops, round(f.gpu_ns / 1e6, 2) AS gpu_ms,
    round(100 * f.mfu, 1) AS mfu_percent,
    round(100 * f.bandwidth_utilization, 1) AS bandwidth_percent, f.suspect, f.not_modelled
FROM family_utilization AS f
JOIN traces AS t ON f.trace_id = t.trace_id
ORDER BY f.gpu_ns DESC, t.job, t.rank, f.family, f.dtype, f.peak_kind, t.trace_id
