-- One row: a span and a phase, with the hardware counters of its GPU work from another run.
-- How: sums over the kernels of span_gpu_work and their rows in kernel_measurements. A span without measurements has no
-- row.
-- scope: lake
-- check: unique(trace_id, span_id, phase)
SELECT
    w.trace_id,  -- The trace.
    w.span_id,  -- The span.
    w.phase,  -- fwd, bwd, recompute, bwd_direct or window, as in span_gpu_work. Never add up nested spans.
    count(*) AS n_kernels,  -- Kernels of the span.
    count(m.matched_by) AS n_measured,  -- Kernels that a file has counted: read the sums with this number in mind.
    TRY_CAST(sum(m.duration_ns) AS BIGINT) AS duration_ns,  -- Summed duration of the kernels in the trace, ns.
    -- Summed duration of the counted kernels, ns.
    TRY_CAST(sum(CASE WHEN m.matched_by IS NOT NULL THEN m.duration_ns END) AS BIGINT) AS measured_ns,
    sum(m.bytes_read) AS bytes_read,  -- Bytes read from the device's memory; NULL where not measured.
    sum(m.bytes_written) AS bytes_written,  -- Bytes written to the device's memory; NULL where not measured.
    -- Mean occupancy of the counted kernels, weighted by their time in the trace, percent.
    sum(m.occupancy_percent * m.duration_ns)
    / nullif(sum(CASE WHEN m.occupancy_percent IS NOT NULL THEN m.duration_ns END), 0) AS occupancy_percent,
    -- Hits of the L2 cache, percent, with the same weights.
    sum(m.l2_hit_percent * m.duration_ns)
    / nullif(sum(CASE WHEN m.l2_hit_percent IS NOT NULL THEN m.duration_ns END), 0) AS l2_hit_percent,
    -- Activity of tensor cores (AMD: matrix cores), percent, with the same weights.
    sum(m.tensor_percent * m.duration_ns)
    / nullif(sum(CASE WHEN m.tensor_percent IS NOT NULL THEN m.duration_ns END), 0) AS tensor_percent
FROM span_gpu_work AS w
JOIN kernel_measurements AS m ON m.trace_id = w.trace_id AND m.event_id = w.event_id
GROUP BY w.trace_id, w.span_id, w.phase
HAVING count(m.matched_by) > 0
