-- Question: Which memory snapshots were taken with which traces, and how much was in use at their peak?
-- Reading: One row per trace and device of its snapshot. Without a history (`has_history`), the peak is the memory in
-- use at the snapshot. If `is_consistent` is false, the history does not fit the snapshot, so do not trust the peak.
-- Words: OOM, out of memory
SELECT
    coalesce(t.job, t.file) AS job, t.rank, t.trace_id, s.file AS snapshot, s.rank AS snapshot_rank, p.device,
    coalesce(p.peak_allocated_bytes, p.allocated_bytes) AS peak_bytes,
    p.peak_allocated_bytes IS NOT NULL AS has_history, p.is_consistent, s.snapshot_id
FROM snapshot_trace_matches AS m
JOIN traces AS t ON m.trace_id = t.trace_id
JOIN memory_snapshots AS s ON m.snapshot_id = s.snapshot_id
JOIN snapshot_peaks AS p ON p.snapshot_id = s.snapshot_id
ORDER BY peak_bytes DESC, s.snapshot_id, p.device, t.trace_id
