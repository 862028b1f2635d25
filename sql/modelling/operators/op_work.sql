-- One row: an operator instance that GPU work belongs to, with the operations and bytes that its arguments imply. Each
-- replay of a graph counts as another run of the captured operators, where these are known.
-- How: formulas over the distinct arguments (pipelines/modelling/formulas.py). An instance counts once, regardless of
-- its number of kernels.
-- check: unique(trace_id, event_id)
SELECT
    c.trace_id,  -- The trace.
    -- Position of the operator in traceEvents, or if a graph replay repeated it, of its first GPU activity there.
    c.event_id,
    c.op,  -- Name of the operator.
    -- gemm, conv, attention, experts, norm, embedding, softmax, elementwise, copy, fill, reduce or fused (by a
    -- compiler); NULL without a model.
    CASE WHEN NOT c.is_graph THEN f.family END AS family,
    -- Type that decides the peak: fp32, bf16, fp16, fp8, …; NULL without a model, or for a type that is unknown.
    CASE WHEN NOT c.is_graph THEN f.dtype END AS dtype,
    c.dims,  -- Shapes of its arguments, JSON; NULL if not recorded.
    c.n_kernels,  -- GPU activities that belong to the operator.
    c.gpu_ns,  -- Summed duration of these activities, ns.
    -- Floating-point operations of matrix products, convolutions and attention (half the attention under a causal
    -- mask); NULL without a model.
    CASE WHEN NOT c.is_graph THEN f.flops_matrix END AS flops_matrix,
    -- flops_matrix without a mask, as PyTorch's counter counts; NULL without a model.
    CASE WHEN NOT c.is_graph THEN f.flops_uncausal END AS flops_uncausal,
    -- All other operations; NULL without a model, or if only the kernel's code determines it.
    CASE WHEN NOT c.is_graph THEN f.flops_vector END AS flops_vector,
    -- Minimum traffic, each operand once, bytes; NULL without a model, if an element's size is unknown, or if the read
    -- data depends on values.
    CASE WHEN NOT c.is_graph THEN f.bytes END AS bytes,
    -- Why there is no model: op_not_modelled, no_shapes, bad_args or graph (one launch, many kernels: the operators ran
    -- at capture, see graph_kernels); else NULL.
    CASE WHEN c.is_graph THEN 'graph' ELSE f.not_modelled END AS not_modelled,
    -- Source of the operator: launch, or for a graph replay capture or eager (as in graph_kernels); NULL if the
    -- operator only launched a graph.
    c.source,
    c.confidence  -- 1 for launch, else as in graph_kernels; NULL as source.
FROM _op_calls AS c
JOIN _op_formulas AS f ON f.shape_id = c.shape_id
