-- model: _span_ops
-- One row: an operator whose GPU work belongs to a span, or to all spans of a name, in a phase.
-- How: the work of span_gpu_work, grouped by operator. Work in several spans of a name counts once.
WITH work AS (
    SELECT
        w.trace_id, w.span_id, s.kind, s.name, w.phase, w.event_id, o.op_event_id, o.duration_ns
    FROM span_gpu_work AS w
    JOIN spans AS s ON s.trace_id = w.trace_id AND s.span_id = w.span_id
    JOIN op_kernels AS o ON o.trace_id = w.trace_id AND o.event_id = w.event_id
    WHERE o.op_event_id IS NOT NULL
),
named AS (
    SELECT DISTINCT trace_id, kind, name, phase, event_id, op_event_id, duration_ns FROM work
    UNION ALL
    SELECT g.trace_id, g.kind, g.name, 'replay', g.event_id, o.op_event_id, o.duration_ns
    FROM _graph_spans AS g
    JOIN op_kernels AS o ON o.trace_id = g.trace_id AND o.event_id = g.event_id
    WHERE o.op_event_id IS NOT NULL
),
recomputed AS (
    SELECT DISTINCT trace_id, op_event_id FROM work WHERE phase = 'recompute'
),
scoped AS (
    SELECT trace_id, CAST(span_id AS VARCHAR) AS scope, phase, op_event_id, sum(duration_ns) AS gpu_ns
    FROM work
    GROUP BY trace_id, span_id, phase, op_event_id
    UNION ALL
    SELECT trace_id, kind || ' ' || name, phase, op_event_id, sum(duration_ns)
    FROM named
    GROUP BY trace_id, kind, name, phase, op_event_id
)
SELECT
    s.trace_id,  -- The trace.
    s.scope,  -- The span's number, or kind and name.
    s.phase,  -- Phase, as in span_names.
    s.op_event_id,  -- The operator.
    TRY_CAST(s.gpu_ns AS BIGINT) AS gpu_ns,  -- GPU time of the operator in the span and phase, ns.
    r.op_event_id IS NOT NULL AS is_recompute  -- True if the operator recomputes a module's forward.
FROM scoped AS s
LEFT JOIN recomputed AS r ON r.trace_id = s.trace_id AND r.op_event_id = s.op_event_id;

-- model: _span_sums
-- One row: a span (or all spans of a name) and a phase, with the operations of its operators and their minimum time;
-- one row per kind of peak.
-- How: sums over _span_ops, op_work and op_utilization. An operator counts once, regardless of its number of kernels.
WITH counted AS (
    SELECT
        s.trace_id, s.scope, s.phase, count(*) AS n_ops,
        count(*) FILTER (WHERE w.not_modelled IS NOT NULL) AS n_ops_not_modelled,
        sum(s.gpu_ns) AS with_op_ns,
        sum(CASE WHEN w.not_modelled IS NULL THEN s.gpu_ns ELSE 0 END) AS modelled_ns,
        sum(w.flops_matrix) AS flops_matrix,
        sum(CASE WHEN s.is_recompute THEN w.flops_matrix END) AS flops_recompute,
        -- NULL if the bytes of an operator with a model are unknown, because a partial sum would make the ratio of
        -- operations to bytes wrong.
        CASE WHEN count(w.bytes) = count(*) FILTER (WHERE w.not_modelled IS NULL) THEN sum(w.bytes) END AS bytes
    FROM _span_ops AS s
    JOIN op_work AS w ON w.trace_id = s.trace_id AND w.event_id = s.op_event_id
    GROUP BY s.trace_id, s.scope, s.phase
),
ideal AS (
    SELECT
        s.trace_id, s.scope, s.phase, u.peak_kind,
        sum(u.ideal_ns) AS ideal_ns, sum(u.ideal_tf32_ns) AS ideal_tf32_ns,
        CASE WHEN count(u.memory_ns) = count(*) THEN sum(u.memory_ns) END AS memory_ns,
        sum(CASE WHEN s.is_recompute THEN 0 ELSE u.ideal_ns END) AS ideal_once_ns,
        sum(CASE WHEN s.is_recompute THEN 0 ELSE u.ideal_tf32_ns END) AS ideal_once_tf32_ns,
        count(*) FILTER (WHERE u.ideal_ns IS NULL) AS n_ops_without_peak
    FROM _span_ops AS s
    JOIN op_utilization AS u ON u.trace_id = s.trace_id AND u.event_id = s.op_event_id AND u.peak_kind IS NOT NULL
    GROUP BY s.trace_id, s.scope, s.phase, u.peak_kind
)
SELECT
    c.trace_id,  -- The trace.
    c.scope,  -- The span's number, or kind and name.
    c.phase,  -- Phase, as in span_gpu_work.
    c.n_ops,  -- Operator instances that GPU work belongs to.
    c.n_ops_not_modelled,  -- Operator instances without a model.
    TRY_CAST(c.with_op_ns AS BIGINT) AS with_op_ns,  -- GPU time of the operators, ns.
    TRY_CAST(c.modelled_ns AS BIGINT) AS modelled_ns,  -- GPU time of the operators with a model, ns.
    TRY_CAST(c.flops_matrix AS BIGINT) AS flops_matrix,  -- Matrix operations; NULL without a model.
    -- Matrix operations of a recomputed forward.
    TRY_CAST(CASE WHEN c.flops_matrix IS NOT NULL THEN coalesce(c.flops_recompute, 0) END AS BIGINT) AS flops_recompute,
    -- Minimum traffic, bytes; NULL without a model, or if the traffic of any operator with a model is unknown.
    TRY_CAST(c.bytes AS BIGINT) AS bytes,
    i.peak_kind,  -- datasheet or measured; NULL for an unknown device.
    -- Operators whose type has no peak on the device, and which therefore have no ideal time.
    coalesce(i.n_ops_without_peak, 0) AS n_ops_without_peak,
    i.ideal_ns,  -- Time of the matrix operations at peak, ns; fp32 at the fp32 peak.
    i.ideal_tf32_ns,  -- ideal_ns with fp32 at the TF32 peak.
    i.ideal_once_ns,  -- ideal_ns without recomputation.
    i.ideal_once_tf32_ns,  -- ideal_tf32_ns without recomputation.
    i.memory_ns  -- Time of the bytes at the memory's bandwidth, ns; NULL without bytes.
FROM counted AS c
LEFT JOIN ideal AS i ON i.trace_id = c.trace_id AND i.scope = c.scope AND i.phase = c.phase;

-- model: _scope_utilization
-- One row: a span or a name of spans, and a phase, with the share of the hardware's peak that it reached; one row per
-- kind of peak.
-- How: ideal times of the operators' operations and bytes at peak, divided by host time and by GPU time.
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
    w.parent_id,  -- The span in which it started on its thread; NULL at the top and for a name.
    w.kind,  -- step, annotation, module or task.
    w.name,  -- Name of the span or spans.
    w.family,  -- The name without its number; NULL for a span.
    -- Spans of the name that GPU work of the phase belongs to; NULL for a span, and in phase replay.
    w.n_spans,
    w.phase,  -- fwd, bwd, recompute, bwd_direct, window or replay, as in span_names.
    w.wall_ns,  -- Duration on the host, ns; NULL in phase replay.
    w.n_kernels,  -- GPU activities.
    w.sum_ns,  -- Summed duration of the activities, ns.
    w.busy_ns,  -- Time in which at least one activity ran, ns.
    u.n_ops,  -- Operator instances that the work belongs to; NULL without any.
    u.n_ops_not_modelled,  -- Operator instances without a model.
    -- Share of the operators' GPU time that has a model: read every other number with this in mind.
    CAST(u.modelled_ns AS DOUBLE) / nullif(u.with_op_ns, 0) AS coverage,
    u.flops_matrix,  -- Matrix operations, including those of a recomputed forward; NULL without a model.
    u.flops_recompute,  -- Matrix operations of a recomputed forward (activation checkpointing).
    -- Minimum traffic, bytes; NULL without a model, or if the traffic of any operator with a model is unknown.
    u.bytes,
    -- Source of the peaks: datasheet or measured; NULL for an unknown device, and then all following columns are NULL.
    u.peak_kind,
    -- Operators with a model whose type has no peak on the device: ideal_ns does not include them.
    u.n_ops_without_peak,
    u.ideal_ns,  -- Time of the matrix operations at the peaks of their types, ns; fp32 at the fp32 peak.
    u.memory_ns,  -- Time of the bytes at the memory's bandwidth, ns; NULL without bytes.
    -- Ideal time of the model's work (without recomputation) divided by host time; NULL except for fwd and window.
    CASE WHEN w.phase IN ('fwd', 'window') THEN u.ideal_once_ns / nullif(w.wall_ns, 0) END AS mfu_wall,
    -- Ideal time without recomputation divided by busy_ns, not clipped.
    u.ideal_once_ns / nullif(w.busy_ns, 0) AS mfu_busy,
    -- mfu_busy with fp32 at the TF32 peak: a trace does not record whether TF32 was used, so this is a lower bound.
    u.ideal_once_tf32_ns / nullif(w.busy_ns, 0) AS mfu_busy_tf32,
    -- Ideal time of all work that ran, including recomputation, divided by host time; NULL except for fwd, recompute
    -- and window.
    CASE WHEN w.phase IN ('fwd', 'recompute', 'window') THEN u.ideal_ns / nullif(w.wall_ns, 0) END AS hfu_wall,
    u.ideal_ns / nullif(w.busy_ns, 0) AS hfu_busy,  -- Ideal time of all work that ran divided by busy_ns.
    u.ideal_tf32_ns / nullif(w.busy_ns, 0) AS hfu_busy_tf32,  -- hfu_busy with fp32 at the TF32 peak.
    -- Bytes divided by busy_ns and the memory's bandwidth; above 1 where operands are in caches.
    u.memory_ns / nullif(w.busy_ns, 0) AS bandwidth_utilization,
    u.flops_matrix / nullif(CAST(u.bytes AS DOUBLE), 0) AS intensity,  -- Matrix operations per byte.
    -- Intensity above which operations are the limit, for this mix of types; NULL without matrix operations.
    u.flops_matrix / nullif(CAST(u.bytes AS DOUBLE), 0) * u.memory_ns / nullif(u.ideal_ns, 0) AS ridge,
    -- compute or memory: the larger of the two ideal times.
    CASE WHEN u.ideal_ns >= u.memory_ns THEN 'compute' WHEN u.ideal_ns < u.memory_ns THEN 'memory' END AS bound_by,
    -- The larger ideal time divided by busy_ns; NULL without a peak for any of the types, or without bytes.
    CASE
        WHEN u.ideal_ns IS NOT NULL AND u.memory_ns IS NOT NULL
            THEN greatest(u.ideal_ns, u.memory_ns) / nullif(w.busy_ns, 0)
    END AS roofline_utilization,
    -- True if a utilization is above threshold('ideal_suspect'): TF32 where fp32 was assumed, a wrong peak or shape, or
    -- GPU work longer than its span.
    coalesce(u.ideal_ns / nullif(w.busy_ns, 0) > threshold('ideal_suspect'), FALSE)
    OR coalesce(
        CASE
            WHEN w.phase IN ('fwd', 'recompute', 'window')
                THEN u.ideal_ns / nullif(w.wall_ns, 0) > threshold('ideal_suspect')
        END,
        FALSE
    ) AS suspect
FROM timed AS w
LEFT JOIN _span_sums AS u ON u.trace_id = w.trace_id AND u.scope = w.scope AND u.phase = w.phase;
