-- One row: a name of spans, a phase, and how much of what the hardware could do was done in all of them; one row for each kind of peak.
-- How: as span_utilization, over all spans of the name; work in several of them counts once.
-- check: unique(trace_id, kind, name, phase, peak_kind)
SELECT
    trace_id,  -- The trace.
    kind,  -- step, annotation, module or task.
    name,  -- The name.
    family,  -- The name without its number.
    phase,  -- fwd, bwd, recompute, bwd_direct or window, as in span_gpu_work.
    n_spans,  -- Spans of the name that GPU work of the phase belongs to.
    wall_ns,  -- Their summed duration on the host, ns.
    n_kernels,  -- Pieces of GPU work.
    sum_ns,  -- Their summed duration, ns.
    busy_ns,  -- Time in which at least one of them ran, ns.
    n_ops,  -- Operator instances that they belong to; NULL without any.
    n_ops_not_modelled,  -- Those without a model.
    coverage,  -- Share of their GPU time that has a model: read every number beside it.
    flops_matrix,  -- Matrix operations, those of a forward computed once more too; NULL without a model.
    flops_recompute,  -- Matrix operations of a forward computed once more (activation checkpointing).
    bytes,  -- Least traffic, bytes; NULL without a model.
    peak_kind,  -- datasheet or measured: what the peaks are; NULL for an unknown device, and with it all that follows.
    n_ops_without_peak,  -- Operators with a model whose type has no peak on the device: their time is missing from ideal_ns.
    ideal_ns,  -- Matrix operations at the peaks of their types, ns; fp32 at the fp32 peak.
    memory_ns,  -- Bytes at the memory's bandwidth, ns.
    mfu_wall,  -- Ideal time of what the model asks for (nothing twice) over the host's time; NULL but for fwd and window.
    mfu_busy,  -- The same over busy_ns; not clipped.
    mfu_busy_tf32,  -- The same with fp32 at the TF32 peak: a trace does not say whether TF32 was used, so this is the lower bound.
    hfu_wall,  -- Ideal time of all that ran, recomputation too, over the host's time; NULL but for fwd, recompute and window.
    hfu_busy,  -- The same over busy_ns.
    hfu_busy_tf32,  -- The same with fp32 at the TF32 peak.
    bandwidth_utilization,  -- Bytes over busy_ns and the memory's bandwidth; above 1 where operands lie in caches.
    intensity,  -- Matrix operations a byte.
    ridge,  -- Intensity above which operations are the limit, for this mix of types; NULL without matrix operations.
    bound_by,  -- compute or memory: the larger of the two ideal times.
    roofline_utilization,  -- The larger ideal time over busy_ns.
    suspect  -- An utilisation is above 1.05: TF32 where fp32 was assumed, a wrong peak or shape, or GPU work longer than its span.
FROM _scope_utilization
WHERE span_id IS NULL
