-- One row: an allocation or release on a device, with the memory in use after it.
-- How: the trace's [memory] instants by time, then by file order. A trace without totals (2021) has only the sum of the
-- bytes.
-- check: unique(trace_id, event_id)
SELECT
    trace_id,  -- The trace.
    event_id,  -- Position in traceEvents.
    device_type,  -- PyTorch's number for the kind of device: 0 CPU, 1 CUDA, 6 HIP.
    device,  -- Device number; -1 for the CPU.
    seq,  -- Position in the order of its device, from 1.
    at_ns,  -- Time of the event, ns.
    TRY_CAST(address AS DECIMAL(20, 0)) AS address,  -- Address of the block; NULL where the trace has none.
    delta_bytes,  -- Bytes allocated; negative for a release.
    allocated_bytes,  -- Memory in use by tensors after the event, bytes, as the allocator counts; NULL if not recorded.
    reserved_bytes,  -- Memory reserved by the allocator after the event, bytes; NULL if not recorded.
    net_bytes,  -- Sum of delta_bytes since the start of the trace: the memory in use relative to that time.
    -- True if the allocator's totals before and after the event differ by its bytes; NULL for the first event of a
    -- device, and where the trace has no totals.
    delta_ok
FROM _memory_events
