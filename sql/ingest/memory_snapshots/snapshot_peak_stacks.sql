-- One row: a stack of a memory snapshot and a device, with its allocations in use at the device's peak; without a
-- history, at the snapshot.
-- scope: memory_snapshot
-- check: unique(snapshot_id, device, stack_id)
WITH alive AS (
    SELECT a.snapshot_id, a.batch_id, a.device, a.stack_id, a.size_bytes, p.peak_allocated_bytes, p.allocated_bytes
    FROM snapshot_allocations AS a
    JOIN snapshot_peaks AS p ON p.snapshot_id = a.snapshot_id AND p.device = a.device
    WHERE coalesce(a.alloc_seq, -1) <= coalesce(p.peak_seq, -1)
        AND (a.free_seq IS NULL OR a.free_seq > coalesce(p.peak_seq, -1))
        AND a.state <> 'release_missing'
)
SELECT
    a.snapshot_id,  -- The snapshot.
    a.batch_id,  -- Ingest run that wrote it.
    a.device,  -- Device number.
    a.stack_id,  -- The stack; NULL for allocations without a recorded stack.
    max(s.user_frame) AS user_frame,  -- Innermost frame of user code; NULL without a stack.
    count(*) AS n_allocations,  -- Number of allocations.
    TRY_CAST(sum(a.size_bytes) AS BIGINT) AS size_bytes,  -- Size of these allocations, bytes.
    -- Share of all memory in use at that time, percent.
    100.0 * sum(a.size_bytes) / nullif(max(coalesce(a.peak_allocated_bytes, a.allocated_bytes)), 0) AS size_percent
FROM alive AS a
LEFT JOIN snapshot_stacks AS s ON s.snapshot_id = a.snapshot_id AND s.stack_id = a.stack_id
GROUP BY a.snapshot_id, a.batch_id, a.device, a.stack_id
