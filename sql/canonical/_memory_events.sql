-- One row: an allocation or release of memory that the trace recorded, with its position among the events of its
-- device.
-- How: order the instant events named [memory] by time and then by file order. Two successive totals of the allocator
-- must differ by the bytes of the later event.
WITH memory_events AS (
    SELECT
        trace_id, event_id, pid, tid, start_ns AS at_ns,
        TRY_CAST(args ->> '$."Device Type"' AS BIGINT) AS device_type,
        TRY_CAST(args ->> '$."Device Id"' AS BIGINT) AS device,
        TRY_CAST(args ->> '$."Addr"' AS HUGEINT) AS address,
        TRY_CAST(args ->> '$."Bytes"' AS BIGINT) AS delta_bytes,
        TRY_CAST(args ->> '$."Total Allocated"' AS BIGINT) AS allocated_bytes,
        TRY_CAST(args ->> '$."Total Reserved"' AS BIGINT) AS reserved_bytes
    FROM events
    WHERE name = '[memory]' AND ph = 'i' AND start_ns IS NOT NULL
)
SELECT
    trace_id,  -- The trace.
    event_id,  -- Position in traceEvents.
    pid,  -- Process.
    tid,  -- Thread.
    at_ns,  -- Time, ns.
    device_type,  -- PyTorch's number for the kind of device: 0 CPU, 1 CUDA, 6 HIP.
    device,  -- Device number.
    row_number() OVER device_order AS seq,  -- Position among the events of the device, from 1.
    address,  -- Address of the block.
    delta_bytes,  -- Allocated bytes; negative for a release.
    allocated_bytes,  -- The allocator's total after the event, bytes.
    reserved_bytes,  -- Memory that the allocator reserves on the device after the event, bytes.
    -- Sum of delta_bytes up to this event, bytes.
    TRY_CAST(sum(delta_bytes) OVER (
        device_order ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS BIGINT) AS net_bytes,
    -- The totals before and after differ by exactly delta_bytes; NULL if either total is missing.
    CAST(allocated_bytes AS HUGEINT) - lag(allocated_bytes) OVER device_order = delta_bytes AS delta_ok
FROM memory_events
WINDOW device_order AS (PARTITION BY trace_id, device_type, device ORDER BY at_ns, event_id)
