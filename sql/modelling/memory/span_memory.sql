-- One row: a span and a device, and the samples of memory that fell into the span.
-- How: the profiler's record of allocations and releases while the span was open on the host, in whatever thread.
-- scope: lake
-- check: unique(trace_id, span_id, device_type, device)
SELECT
    s.trace_id,  -- The trace.
    s.span_id,  -- The span.
    s.kind,  -- step, annotation, module or task.
    s.name,  -- Its name.
    m.device_type,  -- Kind of device, as PyTorch numbers them: 0 CPU, 1 CUDA, 6 HIP.
    m.device,  -- Device number; -1 for the CPU.
    count(*) AS n_samples,  -- Allocations and releases.
    -- Bytes allocated while the span was open.
    TRY_CAST(sum(CASE WHEN m.delta_bytes > 0 THEN m.delta_bytes ELSE 0 END) AS BIGINT) AS allocated_in_span_bytes,
    TRY_CAST(sum(m.delta_bytes) AS BIGINT) AS net_bytes,  -- By how much what is in use grew, bytes.
    -- Most in use by tensors, bytes; NULL where the trace does not say.
    max(m.allocated_bytes) AS peak_allocated_bytes,
    max(m.reserved_bytes) AS peak_reserved_bytes  -- Most reserved by the allocator, bytes; NULL likewise.
FROM spans AS s
JOIN memory_timeline AS m ON m.trace_id = s.trace_id AND m.at_ns >= s.start_ns AND m.at_ns < s.end_ns
GROUP BY s.trace_id, s.span_id, s.kind, s.name, m.device_type, m.device
