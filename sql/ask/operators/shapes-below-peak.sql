-- Question: Which operator shapes lose the most time against the roofline?
-- Reading: `lost_ms` is GPU time in excess of the roofline's minimum for the shape. `bound_by` is the limit: arithmetic
-- or memory. `suspect`: in some trace the shape is faster than the peak allows, so the peak, type or shapes are wrong.
-- Words: MFU, roofline
SELECT
    coalesce(t.job, t.file) AS job, o.op, o.dims, o.dtype, o.device_key, o.peak_kind, sum(o.n_ops) AS n,
    round(sum(o.gpu_ns) / 1e6, 2) AS gpu_ms, round(sum(o.gpu_ns - o.roofline_ns) / 1e6, 2) AS lost_ms,
    o.bound_by, bool_or(o.suspect) AS suspect
FROM op_shape_utilization AS o
JOIN traces AS t ON o.trace_id = t.trace_id
WHERE o.roofline_ns IS NOT NULL
GROUP BY
    coalesce(t.job, t.file), coalesce(t.job, t.trace_id), o.op, o.dims, o.dtype, o.device_key, o.peak_kind, o.bound_by
ORDER BY
    sum(o.gpu_ns - o.roofline_ns) DESC, o.op, o.dims, o.dtype, o.device_key, o.peak_kind, o.bound_by, job,
    coalesce(t.job, t.trace_id)
