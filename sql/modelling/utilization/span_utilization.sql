-- One row: a span and a phase, with the share of the hardware's peak that it reached; one row per kind of peak.
-- How: ideal times of the operators' operations and bytes at peak, divided by host time and by GPU time. Never add up
-- phases.
-- check: unique(trace_id, span_id, phase, peak_kind)
SELECT
    trace_id,  -- The trace.
    span_id,  -- The span.
    parent_id,  -- The span in which it started on its thread; NULL at the top.
    kind,  -- step, annotation, module or task.
    name,  -- Name of the span.
    phase,  -- fwd, bwd, recompute, bwd_direct or window, as in span_gpu_work.
    wall_ns,  -- Duration on the host, ns.
    n_kernels,  -- GPU activities.
    sum_ns,  -- Summed duration of the activities, ns.
    busy_ns,  -- Time in which at least one activity ran, ns.
    n_ops,  -- Operator instances that the work belongs to; NULL without any.
    n_ops_not_modelled,  -- Operator instances without a model.
    coverage,  -- Share of the operators' GPU time that has a model: read every other number with this in mind.
    flops_matrix,  -- Matrix operations, including those of a recomputed forward; NULL without a model.
    flops_recompute,  -- Matrix operations of a recomputed forward (activation checkpointing).
    -- Minimum traffic, bytes; NULL without a model, or if the traffic of any operator with a model is unknown.
    bytes,
    -- Source of the peaks: datasheet or measured; NULL for an unknown device, and then all following columns are NULL.
    peak_kind,
    n_ops_without_peak,  -- Operators with a model whose type has no peak on the device: ideal_ns does not include them.
    ideal_ns,  -- Time of the matrix operations at the peaks of their types, ns; fp32 at the fp32 peak.
    memory_ns,  -- Time of the bytes at the memory's bandwidth, ns; NULL without bytes.
    -- Ideal time of the model's work (without recomputation) divided by host time; NULL except for fwd and window.
    mfu_wall,
    mfu_busy,  -- Ideal time without recomputation divided by busy_ns, not clipped.
    -- mfu_busy with fp32 at the TF32 peak: a trace does not record whether TF32 was used, so this is a lower bound.
    mfu_busy_tf32,
    -- Ideal time of all work that ran, including recomputation, divided by host time; NULL except for fwd, recompute
    -- and window.
    hfu_wall,
    hfu_busy,  -- Ideal time of all work that ran divided by busy_ns.
    hfu_busy_tf32,  -- hfu_busy with fp32 at the TF32 peak.
    -- Bytes divided by busy_ns and the memory's bandwidth; above 1 where operands are in caches.
    bandwidth_utilization,
    intensity,  -- Matrix operations per byte.
    ridge,  -- Intensity above which operations are the limit, for this mix of types; NULL without matrix operations.
    bound_by,  -- compute or memory: the larger of the two ideal times.
    -- The larger ideal time divided by busy_ns; NULL without a peak for any of the types, or without bytes.
    roofline_utilization,
    -- True if a utilization is above threshold('ideal_suspect'): TF32 where fp32 was assumed, a wrong peak or shape, or
    -- GPU work longer than its span.
    suspect
FROM _scope_utilization
WHERE span_id IS NOT NULL
