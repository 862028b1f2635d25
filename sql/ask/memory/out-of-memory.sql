-- Question: Which allocations failed because the GPU's memory was full, and what was in use then?
-- Reading: From the history of CUDA memory snapshots, last failure first. If much memory is reserved and little is in
-- use, it is fragmented (`snapshot-fragmentation`). `frame` is the innermost frame outside PyTorch; NULL if not
-- recorded.
-- Words: OOM, out of memory
SELECT
    m.job, m.rank, m.file, e.device, e.at_ns, e.size_bytes, e.device_free_bytes, l.allocated_bytes, l.reserved_bytes,
    k.user_frame AS frame
FROM snapshot_events AS e
JOIN memory_snapshots AS m ON m.snapshot_id = e.snapshot_id
JOIN snapshot_timeline AS l ON l.snapshot_id = e.snapshot_id AND l.device = e.device AND l.seq = e.seq
LEFT JOIN snapshot_stacks AS k ON k.snapshot_id = e.snapshot_id AND k.stack_id = e.stack_id
WHERE e.action = 'oom'
ORDER BY m.job, m.rank, m.file, e.snapshot_id, e.device, e.seq DESC
