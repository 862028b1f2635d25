-- One row: a block of a segment of a memory snapshot: in use by a tensor, or free.
-- scope: memory_snapshot
-- check: unique(snapshot_id, segment_id, place)
SELECT
    CAST(snapshot_id AS VARCHAR) AS snapshot_id,  -- The snapshot.
    CAST(batch_id AS VARCHAR) AS batch_id,  -- Ingest run that wrote it.
    CAST(segment_id AS BIGINT) AS segment_id,  -- Its segment.
    CAST(place AS BIGINT) AS place,  -- Position in the segment, from 0.
    CAST(device AS BIGINT) AS device,  -- Device number.
    CAST(address AS BIGINT) AS address,  -- Start address, negative from 2^63 on (Intel GPUs).
    CAST(size_bytes AS BIGINT) AS size_bytes,  -- Size, rounded up, bytes.
    CAST(requested_bytes AS BIGINT) AS requested_bytes,  -- Requested size, bytes; NULL if not recorded.
    -- active_allocated: in use; active_pending_free or active_awaiting_free: released, but another stream still uses
    -- it; inactive: free.
    CAST(state AS VARCHAR) AS state,
    CAST(stack_id AS BIGINT) AS stack_id  -- Stack of the allocation, in snapshot_stacks; NULL if not recorded.
FROM _staged_snapshot_blocks
