-- One row: an operator with equal shapes and type in a trace, on one kind of device, with the share of the device's
-- peaks that its instances reached together; one row per kind of peak.
-- How: ratios of sums over op_work and op_utilization. Operators without a model are grouped by the reason.
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
        CASE
            WHEN count(u.ideal_ns) = count(*) AND count(u.memory_ns) = count(*)
                THEN sum(greatest(u.ideal_ns, u.memory_ns))
        END AS roofline_ns,
        min(w.confidence) AS confidence
    FROM op_work AS w
    LEFT JOIN op_utilization AS u ON u.trace_id = w.trace_id AND u.event_id = w.event_id
    GROUP BY w.trace_id, w.op, w.dims, w.family, w.dtype, w.not_modelled, u.device_key, u.peak_kind
)
SELECT
    trace_id,  -- The trace.
    op,  -- Name of the operator.
    dims,  -- Shapes of its arguments, JSON; NULL if not recorded.
    family,  -- Family of its formula; NULL without a model.
    dtype,  -- Type that decides the peak; NULL without a model, or for a type that is unknown.
    not_modelled,  -- Why there is no model; NULL if there is a model.
    device_key,  -- Device of the instances; NULL where it is not recognized, or without a model.
    peak_kind,  -- datasheet or measured; NULL for an unknown device or without a model.
    n_ops,  -- Instances of the operator.
    n_kernels,  -- GPU activities of the instances.
    gpu_ns,  -- GPU time of the instances, ns.
    flops_matrix,  -- Matrix operations; NULL without a model.
    flops_vector,  -- Other operations, which no utilization includes; NULL without a model.
    bytes,  -- Minimum traffic, bytes; NULL without a model, or if an element's size is unknown in an instance.
    ideal_ns,  -- Time of the matrix operations at peak, ns; fp32 at the fp32 peak; NULL without a peak for the type.
    -- ideal_ns with fp32 at the TF32 peak, because a trace does not record whether TF32 was used; equal for other
    -- types.
    ideal_tf32_ns,
    memory_ns,  -- Time of the bytes at the memory's bandwidth, ns; NULL for an unknown device or without bytes.
    -- The sum of each instance's larger ideal time, ns: GPU time beyond it could be saved; NULL without a peak for the
    -- type, or without bytes.
    roofline_ns,
    -- Matrix operations per second of GPU time, 10^12: a ratio of sums, like all following columns, not a mean of
    -- ratios.
    CAST(flops_matrix AS DOUBLE) / nullif(gpu_ns, 0) / 1000 AS tflops,
    -- Bytes divided by GPU time, decimal GB/s; above the memory's bandwidth where operands are in a cache.
    CAST(bytes AS DOUBLE) / nullif(gpu_ns, 0) AS gigabytes_per_s,
    ideal_ns / nullif(gpu_ns, 0) AS mfu,  -- Ideal time divided by GPU time, not clipped; NULL without a peak.
    ideal_tf32_ns / nullif(gpu_ns, 0) AS mfu_tf32,  -- mfu with fp32 at the TF32 peak, a lower bound.
    -- Bytes divided by GPU time and bandwidth; above 1 where operands are in caches.
    memory_ns / nullif(gpu_ns, 0) AS bandwidth_utilization,
    roofline_ns / nullif(gpu_ns, 0) AS roofline_utilization,  -- roofline_ns divided by GPU time.
    -- compute or memory: the larger of the two ideal times; NULL without a peak or bytes.
    CASE
        WHEN ideal_ns < memory_ns OR flops_matrix = 0 AND ideal_ns = memory_ns THEN 'memory'
        WHEN ideal_ns >= memory_ns THEN 'compute'
    END AS bound_by,
    -- True if mfu is above threshold('ideal_suspect'): TF32 where fp32 was assumed, or a wrong peak or shape.
    coalesce(ideal_ns / nullif(gpu_ns, 0) > threshold('ideal_suspect'), FALSE) AS suspect,
    -- Lowest confidence in op_work: below 1 if graph replays ran some of the work; NULL if the instances only launched
    -- graphs.
    confidence
FROM summed
