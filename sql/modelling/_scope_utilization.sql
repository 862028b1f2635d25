-- One row: a span or a name of spans, and a phase, and how much of the hardware's peak it reached; one row per kind of
-- peak.
-- How: operations and bytes of its operators at peak, against host time and against GPU time.
WITH called AS (
    SELECT k.trace_id, s.kind, s.name, k.phase, count(*) AS n_spans, TRY_CAST(sum(s.duration_ns) AS BIGINT) AS host_ns
    FROM span_kernels AS k
    JOIN spans AS s ON s.trace_id = k.trace_id AND s.span_id = k.span_id
    GROUP BY k.trace_id, s.kind, s.name, k.phase
),
timed AS (
    SELECT
        b.trace_id, CAST(b.span_id AS VARCHAR) AS scope, b.span_id, s.parent_id, s.kind, s.name, NULL AS family,
        NULL AS n_spans, b.phase, s.duration_ns AS wall_ns, b.n AS n_kernels, b.sum_ns, b.busy_ns
    FROM span_kernels AS b
    JOIN spans AS s ON s.trace_id = b.trace_id AND s.span_id = b.span_id
    UNION ALL
    SELECT
        b.trace_id, b.kind || ' ' || b.name, NULL, NULL, b.kind, b.name, b.family, c.n_spans,
        b.phase, c.host_ns, b.n, b.sum_ns, b.busy_ns
    FROM span_names AS b
    LEFT JOIN called AS c ON c.trace_id = b.trace_id AND c.kind = b.kind AND c.name = b.name AND c.phase = b.phase
    WHERE c.trace_id IS NOT NULL OR b.phase = 'replay'
)
SELECT
    w.trace_id,  -- The trace.
    w.span_id,  -- The span; NULL for a name of spans.
    w.parent_id,  -- The span it started in on its thread; NULL at the top and for a name.
    w.kind,  -- step, annotation, module or task.
    w.name,  -- Its name.
    w.family,  -- The name without its number; NULL for a span.
    -- Spans of the name that GPU work of the phase belongs to; NULL for a span, and in phase replay.
    w.n_spans,
    w.phase,  -- fwd, bwd, recompute, bwd_direct, window or replay, as in span_names.
    w.wall_ns,  -- Its duration on the host, ns; NULL in phase replay.
    w.n_kernels,  -- Pieces of GPU work.
    w.sum_ns,  -- Their summed duration, ns.
    w.busy_ns,  -- Time in which at least one of them ran, ns.
    u.n_ops,  -- Operator instances that the work belongs to; NULL without any.
    u.n_ops_not_modelled,  -- Those without a model.
    -- Share of their GPU time that has a model: read every other number with this in mind.
    CAST(u.modelled_ns AS DOUBLE) / nullif(u.with_op_ns, 0) AS coverage,
    u.flops_matrix,  -- Matrix operations, including those of a recomputed forward; NULL without a model.
    u.flops_recompute,  -- Matrix operations of a recomputed forward (activation checkpointing).
    u.bytes,  -- Least traffic, bytes; NULL without a model.
    -- Where the peaks come from: datasheet or measured; NULL for an unknown device, and then all that follows is NULL.
    u.peak_kind,
    -- Operators with a model whose type has no peak on the device: ideal_ns does not include them.
    u.n_ops_without_peak,
    u.ideal_ns,  -- Matrix operations at the peaks of their types, ns; fp32 at the fp32 peak.
    u.memory_ns,  -- Bytes at the memory's bandwidth, ns.
    -- Ideal time of the model's work (without recomputation) divided by host time; NULL except for fwd and window.
    CASE WHEN w.phase IN ('fwd', 'window') THEN u.ideal_once_ns / nullif(w.wall_ns, 0) END AS mfu_wall,
    u.ideal_once_ns / nullif(w.busy_ns, 0) AS mfu_busy,  -- The same divided by busy_ns; not clipped.
    -- The same with fp32 at the TF32 peak: a trace does not say whether TF32 was used, so this is a lower bound.
    u.ideal_once_tf32_ns / nullif(w.busy_ns, 0) AS mfu_busy_tf32,
    -- Ideal time of all that ran, including recomputation, divided by host time; NULL except for fwd, recompute and
    -- window.
    CASE WHEN w.phase IN ('fwd', 'recompute', 'window') THEN u.ideal_ns / nullif(w.wall_ns, 0) END AS hfu_wall,
    u.ideal_ns / nullif(w.busy_ns, 0) AS hfu_busy,  -- The same over busy_ns.
    u.ideal_tf32_ns / nullif(w.busy_ns, 0) AS hfu_busy_tf32,  -- The same with fp32 at the TF32 peak.
    -- Bytes divided by busy_ns and the memory's bandwidth; above 1 where operands are in caches.
    u.memory_ns / nullif(w.busy_ns, 0) AS bandwidth_utilization,
    u.flops_matrix / nullif(CAST(u.bytes AS DOUBLE), 0) AS intensity,  -- Matrix operations per byte.
    -- Intensity above which operations are the limit, for this mix of types; NULL without matrix operations.
    u.flops_matrix / nullif(CAST(u.bytes AS DOUBLE), 0) * u.memory_ns / nullif(u.ideal_ns, 0) AS ridge,
    -- compute or memory: the larger of the two ideal times.
    CASE WHEN u.ideal_ns >= u.memory_ns THEN 'compute' WHEN u.ideal_ns < u.memory_ns THEN 'memory' END AS bound_by,
    -- The larger ideal time divided by busy_ns.
    greatest(u.ideal_ns, u.memory_ns) / nullif(w.busy_ns, 0) AS roofline_utilization,
    -- A utilization is above threshold('ideal_suspect'): TF32 where fp32 was assumed, a wrong peak or shape, or GPU
    -- work longer than its span.
    coalesce(u.ideal_ns / nullif(w.busy_ns, 0) > threshold('ideal_suspect'), FALSE)
    OR coalesce(
        CASE
            WHEN w.phase IN ('fwd', 'recompute', 'window')
                THEN u.ideal_ns / nullif(w.wall_ns, 0) > threshold('ideal_suspect')
        END,
        FALSE
    ) AS suspect
FROM timed AS w
LEFT JOIN _span_sums AS u ON u.trace_id = w.trace_id AND u.scope = w.scope AND u.phase = w.phase
