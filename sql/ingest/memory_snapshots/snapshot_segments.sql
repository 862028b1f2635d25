-- One row: a segment of a memory snapshot: memory that the allocator took from the device in one piece.
-- scope: memory_snapshot
-- check: unique(snapshot_id, segment_id)
SELECT
    CAST(snapshot_id AS VARCHAR) AS snapshot_id,  -- The snapshot.
    CAST(batch_id AS VARCHAR) AS batch_id,  -- Ingest run that wrote it.
    CAST(segment_id AS BIGINT) AS segment_id,  -- Its place in the file, from 0.
    CAST(device AS BIGINT) AS device,  -- Device number.
    CAST(address AS BIGINT) AS address,  -- Where it begins.
    CAST(total_bytes AS BIGINT) AS total_bytes,  -- Its size, bytes.
    CAST(allocated_bytes AS BIGINT) AS allocated_bytes,  -- In use by tensors, rounded up, bytes, as the file says.
    CAST(active_bytes AS BIGINT) AS active_bytes,  -- The same with what waits to be released, bytes, as the file says.
    CAST(requested_bytes AS BIGINT) AS requested_bytes,  -- In use before rounding, bytes; NULL where the file has none.
    CAST(stream AS BIGINT) AS stream,  -- Handle of the stream that it belongs to.
    CAST(segment_type AS VARCHAR) AS segment_type,  -- small (blocks up to 1 MiB) or large.
    CAST(pool_id AS VARCHAR) AS pool_id,  -- Pool of memory (0.0: the common one); NULL where the file has none.
    CAST(is_expandable AS BOOLEAN) AS is_expandable,  -- It can grow; NULL where the file does not say.
    CAST(stack_id AS BIGINT) AS stack_id  -- Who took it, in snapshot_stacks; NULL where none was recorded.
FROM _staged_snapshot_segments
