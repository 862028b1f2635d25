-- One row: an allocation or release on a device, with what was in use after it.
-- How: the trace's [memory] instants by time, then by file order; where the trace has no totals (2021), there is only
-- the sum of the bytes.
-- check: unique(trace_id, event_id)
SELECT
    trace_id,  -- The trace.
    event_id,  -- Position in traceEvents.
    device_type,  -- Kind of device, as PyTorch numbers them: 0 CPU, 1 CUDA, 6 HIP.
    device,  -- Device number; -1 for the CPU.
    seq,  -- Place in the order of its device, from 1.
    at_ns,  -- When, ns.
    TRY_CAST(address AS DECIMAL(20, 0)) AS address,  -- Address of the block; NULL where the trace has none.
    delta_bytes,  -- Bytes allocated; negative for a release.
    allocated_bytes,  -- In use by tensors after it, bytes, as the allocator counts; NULL where the trace does not say.
    reserved_bytes,  -- Reserved by the allocator after it, bytes; NULL where the trace does not say.
    net_bytes,  -- Sum of the bytes since the trace began: what is in use beyond what was in use then.
    -- The allocator's totals before and after it differ by its bytes; NULL for the first event of a device and where
    -- the trace has no totals.
    delta_ok
FROM _memory_events
