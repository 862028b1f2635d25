-- Question: Which operators and modules held GPU memory at its peak?
-- Reading: From a CUDA memory snapshot and the profiler trace of the same rank, recorded at the same time.
-- `module_frame` is the innermost `forward` of the stack, which needs no trace. NULL: no trace covers the allocation,
-- or not for certain. `source` clock relies on two clocks that agree to about a microsecond.
SELECT
    m.job, m.rank, m.file, o.device, o.op, o.module, o.module_frame, o.source, o.first_step, o.last_step,
    o.n_allocations, round(o.size_bytes / 1e6, 2) AS size_mb, round(o.size_percent, 1) AS size_percent, p.is_consistent
FROM snapshot_peak_owners AS o
JOIN snapshot_peaks AS p ON p.snapshot_id = o.snapshot_id AND p.device = o.device
JOIN memory_snapshots AS m ON m.snapshot_id = o.snapshot_id
ORDER BY o.size_bytes DESC, m.job, m.rank, m.file, o.device, o.op, o.module, o.module_frame, o.source
