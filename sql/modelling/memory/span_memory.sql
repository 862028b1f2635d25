-- One row: a span and a device, with the memory samples taken during the span.
-- How: the profiler's record of allocations and releases while the span was open on the host, on any thread. Samples
-- are joined only with spans in the same part of time, as in _clip. The query refers to each of its parts once, so that
-- DuckDB reads only the requested traces.
-- scope: lake
-- check: unique(trace_id, span_id, device_type, device)
WITH lasting AS (
    SELECT
        trace_id, span_id, kind, name, start_ns, end_ns,
        CAST(pow(2, ceil(ln(greatest(duration_ns, 1)) / ln(2)) + 1) AS BIGINT) AS part_ns
    FROM spans
),
halves AS (
    SELECT 0 AS half
    UNION ALL
    SELECT 1 AS half
),
placed AS (
    SELECT s.*, s.start_ns // s.part_ns + h.half AS part
    FROM lasting AS s
    CROSS JOIN halves AS h
    WHERE h.half = 0 OR s.end_ns // s.part_ns > s.start_ns // s.part_ns
),
lengths AS (
    SELECT DISTINCT
        trace_id, CAST(pow(2, ceil(ln(greatest(duration_ns, 1)) / ln(2)) + 1) AS BIGINT) AS part_ns
    FROM spans
),
samples AS (
    SELECT
        m.trace_id, m.device_type, m.device, m.at_ns, m.delta_bytes, m.allocated_bytes, m.reserved_bytes, l.part_ns,
        m.at_ns // l.part_ns AS part
    FROM memory_timeline AS m
    JOIN lengths AS l ON l.trace_id = m.trace_id
)
SELECT
    s.trace_id,  -- The trace.
    s.span_id,  -- The span.
    s.kind,  -- step, annotation, module or task.
    s.name,  -- Name of the span.
    m.device_type,  -- PyTorch's number for the kind of device: 0 CPU, 1 CUDA, 6 HIP.
    m.device,  -- Device number; -1 for the CPU.
    count(*) AS n_samples,  -- Allocations and releases.
    -- Bytes allocated while the span was open.
    TRY_CAST(sum(CASE WHEN m.delta_bytes > 0 THEN m.delta_bytes ELSE 0 END) AS BIGINT) AS allocated_in_span_bytes,
    TRY_CAST(sum(m.delta_bytes) AS BIGINT) AS net_bytes,  -- Growth of the memory in use, bytes.
    -- Peak memory in use by tensors, bytes; NULL if not recorded.
    max(m.allocated_bytes) AS peak_allocated_bytes,
    max(m.reserved_bytes) AS peak_reserved_bytes  -- Peak memory reserved by the allocator, bytes; NULL if not recorded.
FROM placed AS s
JOIN samples AS m ON m.trace_id = s.trace_id AND m.part_ns = s.part_ns AND m.part = s.part
WHERE m.at_ns >= s.start_ns AND m.at_ns < s.end_ns
GROUP BY s.trace_id, s.span_id, s.kind, s.name, m.device_type, m.device
