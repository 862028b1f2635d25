-- Question: How close do families of operators come to the peaks?
-- Reading: One row per family, type and kind of peak.
SELECT x.*
FROM family_utilization AS x
JOIN traces AS t ON x.trace_id = t.trace_id
ORDER BY x.gpu_ns DESC, x.family, x.dtype, x.not_modelled, x.peak_kind
