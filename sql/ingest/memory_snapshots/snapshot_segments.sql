-- One row: a segment of a memory snapshot: a contiguous range of memory that the allocator took from the device.
-- scope: memory_snapshot
-- check: unique(snapshot_id, segment_id)
SELECT
    CAST(snapshot_id AS VARCHAR) AS snapshot_id,  -- The snapshot.
    CAST(batch_id AS VARCHAR) AS batch_id,  -- Ingest run that wrote it.
    CAST(segment_id AS BIGINT) AS segment_id,  -- Position in the file, from 0.
    CAST(device AS BIGINT) AS device,  -- Device number.
    CAST(address AS BIGINT) AS address,  -- Start address, negative from 2^63 on (Intel GPUs).
    CAST(total_bytes AS BIGINT) AS total_bytes,  -- Size, bytes.
    CAST(allocated_bytes AS BIGINT) AS allocated_bytes,  -- In use by tensors, rounded up, bytes, as in the file.
    -- allocated_bytes plus memory waiting to be released, bytes, as in the file.
    CAST(active_bytes AS BIGINT) AS active_bytes,
    CAST(requested_bytes AS BIGINT) AS requested_bytes,  -- In use, before rounding, bytes; NULL if the file has none.
    CAST(stream AS BIGINT) AS stream,  -- Handle of its stream.
    CAST(segment_type AS VARCHAR) AS segment_type,  -- small (blocks up to 1 MiB) or large.
    CAST(pool_id AS VARCHAR) AS pool_id,  -- Memory pool (0.0 is the default pool); NULL if the file has none.
    CAST(is_expandable AS BOOLEAN) AS is_expandable,  -- Whether it can grow; NULL if the file does not record it.
    CAST(stack_id AS BIGINT) AS stack_id  -- Stack of its allocation, in snapshot_stacks; NULL if not recorded.
FROM _staged_snapshot_segments
