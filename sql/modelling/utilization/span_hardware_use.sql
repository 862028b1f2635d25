-- One row: a span and a phase, with the use of the device's compute, memory and links by its GPU work, each with its
-- coverage; one row per kind of peak.
-- How: minimum times divided by the time in which the span's GPU work ran. Matrix operations and bytes are as in
-- span_utilization, collectives as in collective_bandwidth. A collective's time includes the wait for late ranks. Never
-- add up phases.
-- check: unique(trace_id, span_id, phase, peak_kind)
WITH sent AS (
    SELECT
        w.trace_id, w.span_id, w.phase, count(*) AS n_collectives,
        sum(c.duration_ns) AS sum_ns,
        sum(CASE WHEN c.link_utilization IS NOT NULL OR c.group_size = 1 THEN c.duration_ns ELSE 0 END) AS known_ns,
        sum(
            CASE WHEN c.group_size = 1 THEN 0 ELSE c.bytes * c.factor / c.limit_gigabytes_per_s END
        ) AS links_ns
    FROM span_gpu_work AS w
    JOIN collective_bandwidth AS c ON c.trace_id = w.trace_id AND c.event_id = w.event_id
    GROUP BY w.trace_id, w.span_id, w.phase
)
SELECT
    u.trace_id,  -- The trace.
    u.span_id,  -- The span.
    u.kind,  -- step, annotation, module or task.
    u.name,  -- Name of the span.
    u.phase,  -- fwd, bwd, recompute, bwd_direct or window, as in span_gpu_work.
    u.peak_kind,  -- Source of the peaks of compute and memory: datasheet or measured; NULL for an unknown device.
    u.busy_ns,  -- Time in which its GPU work ran, ns: the denominator of the three utilizations.
    -- Time of the matrix operations at the peaks of their types, divided by busy_ns. This column and the next are NULL
    -- if no operator has a model, or the device is unknown.
    u.hfu_busy AS compute_utilization,
    -- Time of the minimum traffic at the memory's bandwidth, divided by busy_ns; NULL also if the traffic of an
    -- operator with a model is unknown.
    u.bandwidth_utilization AS memory_utilization,
    -- Share of its operators' GPU time that has a model: the two utilizations do not include the rest. NULL without
    -- operators.
    u.coverage AS operator_coverage,
    -- Operators with a model whose type has no peak on the device: compute_utilization does not include them.
    u.n_ops_without_peak,
    s.n_collectives,  -- Communication kernels of the span; NULL without any.
    -- Time of its collectives' bytes at the bandwidth of a rank's links, divided by busy_ns; NULL unless bytes, group
    -- and links of a collective are known. It does not include copies between devices.
    CASE WHEN s.known_ns > 0 THEN s.links_ns / nullif(CAST(u.busy_ns AS DOUBLE), 0) END AS interconnect_utilization,
    -- Share of its collectives' summed time for which bytes, group and links are known.
    CAST(s.known_ns AS DOUBLE) / nullif(s.sum_ns, 0) AS interconnect_coverage
FROM span_utilization AS u
LEFT JOIN sent AS s ON s.trace_id = u.trace_id AND s.span_id = u.span_id AND s.phase = u.phase
