-- One row: what the operators of a span (or of all spans of a name) did in a phase, and the least time that takes; one
-- row per kind of peak.
-- How: sums over _span_ops, op_work and op_utilization; an operator counts once, however many kernels it took.
WITH counted AS (
    SELECT
        s.trace_id, s.scope, s.phase, count(*) AS n_ops,
        count(*) FILTER (WHERE w.not_modelled IS NOT NULL) AS n_ops_not_modelled,
        sum(s.gpu_ns) AS with_op_ns,
        sum(CASE WHEN w.not_modelled IS NULL THEN s.gpu_ns ELSE 0 END) AS modelled_ns,
        sum(w.flops_matrix) AS flops_matrix,
        sum(CASE WHEN s.is_recompute THEN w.flops_matrix END) AS flops_recompute,
        sum(w.bytes) AS bytes
    FROM _span_ops AS s
    JOIN op_work AS w ON w.trace_id = s.trace_id AND w.event_id = s.op_event_id
    GROUP BY s.trace_id, s.scope, s.phase
),
ideal AS (
    SELECT
        s.trace_id, s.scope, s.phase, u.peak_kind,
        sum(u.ideal_ns) AS ideal_ns, sum(u.ideal_tf32_ns) AS ideal_tf32_ns, sum(u.memory_ns) AS memory_ns,
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
    c.n_ops_not_modelled,  -- Those without a model.
    TRY_CAST(c.with_op_ns AS BIGINT) AS with_op_ns,  -- Their GPU time, ns.
    TRY_CAST(c.modelled_ns AS BIGINT) AS modelled_ns,  -- GPU time of those with a model, ns.
    TRY_CAST(c.flops_matrix AS BIGINT) AS flops_matrix,  -- Matrix operations; NULL without a model.
    -- Those of a recomputed forward.
    TRY_CAST(CASE WHEN c.flops_matrix IS NOT NULL THEN coalesce(c.flops_recompute, 0) END AS BIGINT) AS flops_recompute,
    TRY_CAST(c.bytes AS BIGINT) AS bytes,  -- Least traffic, bytes; NULL without a model.
    i.peak_kind,  -- datasheet or measured; NULL for an unknown device.
    -- Operators whose type has no peak on the device, and so no ideal time.
    coalesce(i.n_ops_without_peak, 0) AS n_ops_without_peak,
    i.ideal_ns,  -- Matrix operations at peak, ns; fp32 at the fp32 peak.
    i.ideal_tf32_ns,  -- The same with fp32 at the TF32 peak.
    i.ideal_once_ns,  -- ideal_ns without recomputation.
    i.ideal_once_tf32_ns,  -- ideal_tf32_ns without recomputation.
    i.memory_ns  -- Bytes at the memory's bandwidth, ns.
FROM counted AS c
LEFT JOIN ideal AS i ON i.trace_id = c.trace_id AND i.scope = c.scope AND i.phase = c.phase
