-- Question: What held GPU memory at its peak, by line of code?
-- Reading: From CUDA memory snapshots (`_dump_snapshot`). `frame` is the innermost frame outside PyTorch that
-- allocated; NULL if the stack was not recorded. Without a history, values are at the time of the snapshot. If
-- `is_consistent` is false, the history does not fit the snapshot, so do not trust the peak.
-- Words: OOM, out of memory
SELECT
    m.job, m.rank, m.file, s.device, s.user_frame AS frame, sum(s.n_allocations) AS n_allocations,
    round(sum(s.size_bytes) / 1e6, 2) AS size_mb, round(sum(s.size_percent), 1) AS size_percent,
    round(max(coalesce(p.peak_allocated_bytes, p.allocated_bytes)) / 1e9, 3) AS peak_gb, p.is_consistent
FROM snapshot_peak_stacks AS s
JOIN snapshot_peaks AS p ON p.snapshot_id = s.snapshot_id AND p.device = s.device
JOIN memory_snapshots AS m ON m.snapshot_id = s.snapshot_id
GROUP BY m.snapshot_id, m.job, m.rank, m.file, s.device, s.user_frame, p.is_consistent
ORDER BY sum(s.size_bytes) DESC, m.job, m.rank, m.file, s.device, s.user_frame
