-- One row: the instances of an operator in a trace with equal shapes and type on a kind of device, and how much of its peaks they reached together; one row for each kind of peak.
-- How: sums over op_work and op_utilization, ratios of these sums; operators without a model are rows of their reason.
-- check: unique(trace_id, op, dims, family, dtype, not_modelled, device_key, peak_kind)
WITH summed AS (
    SELECT
        w.trace_id, w.op, w.dims, w.family, w.dtype, w.not_modelled, u.device_key, u.peak_kind,
        count(*) AS n_ops,
        TRY_CAST(sum(w.n_kernels) AS BIGINT) AS n_kernels,
        TRY_CAST(sum(w.gpu_ns) AS BIGINT) AS gpu_ns,
        TRY_CAST(sum(w.flops_matrix) AS BIGINT) AS flops_matrix,
        TRY_CAST(sum(w.flops_vector) AS BIGINT) AS flops_vector,
        CASE WHEN count(w.bytes) = count(*) THEN TRY_CAST(sum(w.bytes) AS BIGINT) END AS bytes,
        sum(u.ideal_ns) AS ideal_ns,
        sum(u.ideal_tf32_ns) AS ideal_tf32_ns,
        CASE WHEN count(w.bytes) = count(*) THEN sum(u.memory_ns) END AS memory_ns,
        sum(greatest(u.ideal_ns, u.memory_ns)) AS roofline_ns
    FROM op_work AS w
    LEFT JOIN op_utilization AS u ON u.trace_id = w.trace_id AND u.event_id = w.event_id
    GROUP BY w.trace_id, w.op, w.dims, w.family, w.dtype, w.not_modelled, u.device_key, u.peak_kind
)
SELECT
    trace_id,  -- The trace.
    op,  -- Name of the operator.
    dims,  -- Shapes of its arguments, JSON; NULL where they were not recorded.
    family,  -- Family of its formula; NULL without a model.
    dtype,  -- Type that decides the peak; NULL without a model, or for a type that is not known.
    not_modelled,  -- Why there is no model; NULL where there is.
    device_key,  -- Device it ran on; NULL where that is not recognised, or without a model.
    peak_kind,  -- datasheet or measured; NULL for an unknown device or without a model.
    n_ops,  -- Instances.
    n_kernels,  -- Pieces of GPU work that belong to them.
    gpu_ns,  -- Their GPU time, ns.
    flops_matrix,  -- Matrix operations; NULL without a model.
    flops_vector,  -- Other operations; they count for no utilisation; NULL without a model.
    bytes,  -- Least traffic, bytes; NULL without a model, or where an element's size is not known in one of them.
    ideal_ns,  -- Matrix operations at peak, ns; fp32 at the fp32 peak; NULL without a peak for the type.
    ideal_tf32_ns,  -- The same with fp32 at the TF32 peak: whether TF32 was used is not in a trace; equal for other types.
    memory_ns,  -- Bytes at the memory's bandwidth, ns; NULL for an unknown device or without bytes.
    roofline_ns,  -- The larger ideal time of each instance, ns: GPU time beyond it is what could be gained; NULL for an unknown device.
    CAST(flops_matrix AS DOUBLE) / nullif(gpu_ns, 0) / 1000 AS tflops,  -- Matrix operations a second of GPU time, 10^12: a ratio of sums, not a mean of ratios, as all that follow.
    CAST(bytes AS DOUBLE) / nullif(gpu_ns, 0) AS gbps,  -- Bytes over GPU time, decimal GB/s; above the memory's where operands lie in a cache.
    ideal_ns / nullif(gpu_ns, 0) AS mfu,  -- Ideal over GPU time, not clipped; NULL without a peak.
    ideal_tf32_ns / nullif(gpu_ns, 0) AS mfu_tf32,  -- The same with fp32 at the TF32 peak: the lower bound.
    memory_ns / nullif(gpu_ns, 0) AS bandwidth_utilization,  -- Bytes over GPU time and bandwidth; above 1 where operands lie in caches.
    roofline_ns / nullif(gpu_ns, 0) AS roofline_utilization,  -- How near the instances came to the roof above them.
    CASE WHEN flops_matrix = 0 OR ideal_ns < memory_ns THEN 'memory' WHEN ideal_ns >= memory_ns THEN 'compute' END AS bound_by,  -- compute or memory: the larger of the two ideal times; NULL without a peak.
    coalesce(ideal_ns / nullif(gpu_ns, 0) > 1.05, FALSE) AS suspect  -- mfu is above 1.05: TF32 where fp32 was assumed, or a wrong peak or shape.
FROM summed
