-- One row: an event in a memory snapshot's history: an allocation or release, or memory taken from the device or
-- returned to it. The history is a ring of limited length, so it may begin long after the program started.
-- scope: memory_snapshot
-- check: unique(snapshot_id, device, seq)
SELECT
    CAST(snapshot_id AS VARCHAR) AS snapshot_id,  -- The snapshot.
    CAST(batch_id AS VARCHAR) AS batch_id,  -- Ingest run that wrote it.
    CAST(device AS BIGINT) AS device,  -- Device number.
    CAST(seq AS BIGINT) AS seq,  -- Position in the device's history, from 0.
    -- alloc; free_requested (the tensor was freed); free_completed (the memory can be reused; later than the request
    -- only if other streams used it); segment_alloc, segment_free (cudaMalloc, cudaFree); segment_map, segment_unmap
    -- (of expandable segments); oom (out of memory); snapshot; user_defined.
    CAST(action AS VARCHAR) AS action,
    CAST(address AS BIGINT) AS address,  -- Address, negative from 2^63 on (Intel GPUs), as in traces; NULL for oom.
    -- Requested size, bytes, before rounding; for a segment, its size; for oom, the size that could not be allocated.
    CAST(size_bytes AS BIGINT) AS size_bytes,
    CAST(device_free_bytes AS BIGINT) AS device_free_bytes,  -- For oom: free memory of the device, bytes; else NULL.
    CAST(stream AS BIGINT) AS stream,  -- Handle of the stream in the driver; 0 is the default stream.
    CAST(at_ns AS BIGINT) AS at_ns,  -- Time, ns since the Unix epoch, to the us; NULL before PyTorch 2.1.
    CAST(pool_id AS VARCHAR) AS pool_id,  -- Memory pool (0.0 is the default pool); NULL if the file has none.
    -- Activity of torch.compile at that time; NULL if the file has none.
    CAST(compile_context AS VARCHAR) AS compile_context,
    CAST(user_metadata AS VARCHAR) AS user_metadata,  -- Text that the program attached; NULL if the file has none.
    CAST(stack_id AS BIGINT) AS stack_id  -- Its stack, in snapshot_stacks; NULL if not recorded.
FROM _staged_snapshot_events
