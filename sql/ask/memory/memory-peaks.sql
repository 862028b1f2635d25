-- Question: How much GPU memory is used at the peak?
-- Reading: From the profiler's memory events (`profile_memory=True`). Without totals in the trace, the peak is relative
-- to its start.
-- Words: OOM, out of memory
SELECT
    coalesce(t.job, t.file) AS job, t.rank,
    m.device_type, m.device, round(m.peak_allocated_bytes / 1e9, 3) AS peak_allocated_gb,
    round(m.peak_reserved_bytes / 1e9, 3) AS peak_reserved_gb,
    round(m.peak_relative_bytes / 1e9, 3) AS peak_relative_gb,
    m.n_allocs, m.n_live
FROM memory_peaks AS m
JOIN traces AS t ON m.trace_id = t.trace_id
ORDER BY m.peak_relative_bytes DESC, job, t.rank, m.device_type, m.device, t.trace_id
