-- One row: a segment of a memory snapshot: how much of it is in use, lost to rounding, and free.
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
    -- Handle of the stream that it belongs to: its free memory is of use to that stream only.
    s.stream,
    s.segment_type,  -- small (blocks up to 1 MiB) or large.
    s.pool_id,  -- Pool of memory: its free memory is of use to that pool only; NULL where the file has none.
    s.total_bytes,  -- Its size, bytes.
    CAST(b.used_bytes AS BIGINT) AS used_bytes,  -- In use by tensors, bytes asked for.
    CAST(b.rounding_bytes AS BIGINT) AS rounding_bytes,  -- Lost because blocks in use are rounded up, bytes.
    CAST(b.pending_bytes AS BIGINT) AS pending_bytes,  -- Released, and still used by another stream, bytes.
    CAST(b.free_bytes AS BIGINT) AS free_bytes,  -- Free, bytes.
    -- The largest free block: no larger tensor fits, bytes.
    CAST(b.largest_free_bytes AS BIGINT) AS largest_free_bytes,
    b.n_blocks,  -- Blocks.
    b.n_free_blocks,  -- Free ones.
    -- Wholly free segments can be given back to the device (torch.cuda.empty_cache); others hold their free blocks.
    b.free_bytes = s.total_bytes AS is_free
FROM snapshot_segments AS s
JOIN sums AS b ON b.snapshot_id = s.snapshot_id AND b.segment_id = s.segment_id
