-- One row: a trace with GPU work, and the part of its GPU time that operator models cover.
-- How: sums over op_kernels and op_work. Uncovered time is listed by reason. Each part of gpu_ns has one reason.
-- check: unique(trace_id)
WITH work AS (
    SELECT
        trace_id, count(*) AS n_ops, sum(gpu_ns) AS with_op_ns,
        count(*) FILTER (WHERE not_modelled IS NULL) AS n_modelled,
        sum(CASE WHEN not_modelled IS NULL THEN gpu_ns ELSE 0 END) AS modelled_ns,
        sum(CASE WHEN flops_matrix > 0 THEN gpu_ns ELSE 0 END) AS matrix_ns,
        sum(CASE WHEN not_modelled = 'op_not_modelled' THEN gpu_ns ELSE 0 END) AS op_not_modelled_ns,
        sum(CASE WHEN not_modelled = 'no_shapes' THEN gpu_ns ELSE 0 END) AS no_shapes_ns,
        sum(CASE WHEN not_modelled = 'bad_args' THEN gpu_ns ELSE 0 END) AS bad_args_ns,
        sum(CASE WHEN not_modelled = 'graph' THEN gpu_ns ELSE 0 END) AS graph_ns,
        sum(flops_matrix) AS flops_matrix, sum(flops_uncausal) AS flops_uncausal, sum(flops_vector) AS flops_vector,
        sum(bytes) AS bytes
    FROM op_work
    GROUP BY trace_id
)
SELECT
    k.trace_id,  -- The trace.
    coalesce(max(w.n_ops), 0) AS n_ops,  -- Operator instances that GPU work belongs to.
    coalesce(max(w.n_modelled), 0) AS n_ops_modelled,  -- Instances with a model.
    TRY_CAST(sum(k.duration_ns) AS BIGINT) AS gpu_ns,  -- Summed duration of all GPU work, ns.
    -- Duration of the work that belongs to an operator, ns.
    TRY_CAST(coalesce(max(w.with_op_ns), 0) AS BIGINT) AS with_op_ns,
    -- Duration of the work whose operator has a model, ns.
    TRY_CAST(coalesce(max(w.modelled_ns), 0) AS BIGINT) AS modelled_ns,
    -- Duration of the work whose operator has matrix operations, ns.
    TRY_CAST(coalesce(max(w.matrix_ns), 0) AS BIGINT) AS matrix_ns,
    -- Duration of work of operators without a formula, ns.
    TRY_CAST(coalesce(max(w.op_not_modelled_ns), 0) AS BIGINT) AS op_not_modelled_ns,
    -- Duration of work of operators whose shapes were not recorded, ns.
    TRY_CAST(coalesce(max(w.no_shapes_ns), 0) AS BIGINT) AS no_shapes_ns,
    -- Duration of work of operators with arguments that the formula does not understand, ns.
    TRY_CAST(coalesce(max(w.bad_args_ns), 0) AS BIGINT) AS bad_args_ns,
    -- Duration of work launched as CUDA or HIP graphs whose operator is unknown, and of all other work of operators
    -- that launch such graphs, ns.
    TRY_CAST(
        sum(CASE WHEN k.not_modelled = 'graph' AND k.op_event_id IS NULL THEN k.duration_ns ELSE 0 END)
        + coalesce(max(w.graph_ns), 0) AS BIGINT
    ) AS graph_ns,
    -- Duration of work whose launch is not in the trace, ns.
    TRY_CAST(sum(CASE WHEN k.not_modelled = 'no_launch' THEN k.duration_ns ELSE 0 END) AS BIGINT) AS no_launch_ns,
    -- Duration of work whose launch ran outside of operators, ns.
    TRY_CAST(
        sum(CASE WHEN k.not_modelled = 'launch_without_op' THEN k.duration_ns ELSE 0 END) AS BIGINT
    ) AS launch_without_op_ns,
    -- Summed matrix operations; NULL where no operator has a model.
    TRY_CAST(max(w.flops_matrix) AS BIGINT) AS flops_matrix,
    -- Summed matrix operations without causal masks; NULL where no operator has a model.
    TRY_CAST(max(w.flops_uncausal) AS BIGINT) AS flops_uncausal,
    -- Summed other operations; NULL where no operator has a model.
    TRY_CAST(max(w.flops_vector) AS BIGINT) AS flops_vector,
    TRY_CAST(max(w.bytes) AS BIGINT) AS bytes,  -- Summed minimum traffic, bytes; NULL where no operator has a model.
    -- Share of with_op_ns that has a model; NULL where with_op_ns is 0.
    CASE WHEN max(w.with_op_ns) > 0 THEN max(w.modelled_ns) / max(w.with_op_ns) END AS coverage,
    -- matrix_ns in percent of with_op_ns, 0 to 100; NULL where with_op_ns is 0.
    100 * CASE WHEN max(w.with_op_ns) > 0 THEN max(w.matrix_ns) / max(w.with_op_ns) END AS matrix_percent,
    -- Duration of work launched as CUDA or HIP graphs whose operator follows from the capture, or from the same work
    -- outside graphs, ns: part of with_op_ns.
    TRY_CAST(sum(CASE WHEN k.source IN ('capture', 'eager') THEN k.duration_ns ELSE 0 END) AS BIGINT) AS graph_known_ns
FROM op_kernels AS k
LEFT JOIN work AS w ON w.trace_id = k.trace_id
GROUP BY k.trace_id
