-- One row: a segment of a memory snapshot, with its bytes in use, lost to rounding, and free.
-- scope: memory_snapshot
-- check: unique(snapshot_id, segment_id)
WITH sums AS (
    SELECT
        snapshot_id, segment_id,
        count(*) AS n_blocks,
        count(CASE WHEN state = 'inactive' THEN 1 END) AS n_free_blocks,
        sum(CASE WHEN state = 'active_allocated' THEN coalesce(requested_bytes, size_bytes) ELSE 0 END) AS used_bytes,
        sum(CASE WHEN state = 'active_allocated' THEN size_bytes - coalesce(requested_bytes, size_bytes) ELSE 0 END)
            AS rounding_bytes,
        sum(CASE WHEN state NOT IN ('active_allocated', 'inactive') THEN size_bytes ELSE 0 END) AS pending_bytes,
        sum(CASE WHEN state = 'inactive' THEN size_bytes ELSE 0 END) AS free_bytes,
        max(CASE WHEN state = 'inactive' THEN size_bytes ELSE 0 END) AS largest_free_bytes
    FROM snapshot_blocks
    GROUP BY snapshot_id, segment_id
)
SELECT
    s.snapshot_id,  -- The snapshot.
    s.batch_id,  -- Ingest run that wrote it.
    s.segment_id,  -- The segment.
    s.device,  -- Device number.
    s.stream,  -- Handle of its stream, the only stream that can use its free memory.
    s.segment_type,  -- small (blocks up to 1 MiB) or large.
    s.pool_id,  -- Its memory pool, the only pool that can use its free memory; NULL if the file has none.
    s.total_bytes,  -- Size, bytes.
    CAST(b.used_bytes AS BIGINT) AS used_bytes,  -- In use by tensors, as requested, bytes.
    CAST(b.rounding_bytes AS BIGINT) AS rounding_bytes,  -- Lost because blocks in use are rounded up, bytes.
    CAST(b.pending_bytes AS BIGINT) AS pending_bytes,  -- Released, but still used by another stream, bytes.
    CAST(b.free_bytes AS BIGINT) AS free_bytes,  -- Free, bytes.
    CAST(b.largest_free_bytes AS BIGINT) AS largest_free_bytes,  -- Largest free block, bytes; no larger tensor fits.
    b.n_blocks,  -- Number of blocks.
    b.n_free_blocks,  -- Number of free blocks.
    -- Whether the whole segment is free. Only then can torch.cuda.empty_cache return its memory to the device.
    b.free_bytes = s.total_bytes AS is_free
FROM snapshot_segments AS s
JOIN sums AS b ON b.snapshot_id = s.snapshot_id AND b.segment_id = s.segment_id
