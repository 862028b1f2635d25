-- One row: an operator instance that GPU work belongs to, with the operations and bytes that its arguments imply. Each
-- replay of a graph counts as one more run of the operators that were captured, where these are known.
-- How: formulas over the distinct arguments (pipelines/modelling/formulas.py); an instance counts once, however many
-- kernels it took.
-- check: unique(trace_id, event_id)
SELECT
    c.trace_id,  -- The trace.
    -- The operator's position in traceEvents; where a graph replay ran it again, that of its first GPU work there.
    c.event_id,
    c.op,  -- Its name.
    -- gemm, conv, attention, experts, norm, embedding, softmax, elementwise, copy, fill, reduce or fused (by a
    -- compiler); NULL without a model.
    CASE WHEN NOT c.is_graph THEN f.family END AS family,
    -- Type that decides the peak: fp32, bf16, fp16, fp8, …; NULL without a model, or for a type that is unknown.
    CASE WHEN NOT c.is_graph THEN f.dtype END AS dtype,
    c.dims,  -- Shapes of its arguments, JSON; NULL where they were not recorded.
    c.n_kernels,  -- GPU activities that belong to it.
    c.gpu_ns,  -- Their summed duration, ns.
    -- Floating-point operations of matrix products, convolutions and attention (half of it under a causal mask); NULL
    -- without a model.
    CASE WHEN NOT c.is_graph THEN f.flops_matrix END AS flops_matrix,
    -- The same without a mask, as PyTorch's counter counts; NULL without a model.
    CASE WHEN NOT c.is_graph THEN f.flops_uncausal END AS flops_uncausal,
    -- All other operations; NULL without a model, or if only the kernel's code determines it.
    CASE WHEN NOT c.is_graph THEN f.flops_vector END AS flops_vector,
    -- Least traffic, each operand once, bytes; NULL without a model, where an element's size is unknown, or where
    -- data decides what is read.
    CASE WHEN NOT c.is_graph THEN f.bytes END AS bytes,
    -- Why there is no model: op_not_modelled, no_shapes, bad_args or graph (one launch, many kernels: the operators ran
    -- when it was recorded, see graph_kernels); else NULL.
    CASE WHEN c.is_graph THEN 'graph' ELSE f.not_modelled END AS not_modelled,
    -- What the operator is known from: launch, or capture or eager where a graph replay ran it (as in graph_kernels);
    -- NULL where it only launched a graph.
    c.source,
    c.confidence  -- 1 for launch, else as in graph_kernels; NULL as source.
FROM _op_calls AS c
JOIN _op_formulas AS f ON f.shape_id = c.shape_id
