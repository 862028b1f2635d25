-- One row: a family of operators with a type in a trace, with the share of the device's peaks that it reached; one row
-- per kind of peak.
-- How: sums over op_work and op_utilization. Operators without a model are grouped by the reason.
-- check: unique(trace_id, family, dtype, not_modelled, peak_kind)
SELECT
    w.trace_id,  -- The trace.
    -- gemm, conv, attention, experts, norm, embedding, softmax, elementwise, copy, fill, reduce or fused (by a
    -- compiler); NULL without a model.
    w.family,
    w.dtype,  -- Type that decides the peak; NULL without a model, or for a type that is unknown.
    w.not_modelled,  -- Why there is no model; NULL if there is a model.
    u.peak_kind,  -- datasheet or measured; NULL for an unknown device or without a model.
    count(*) AS n_ops,  -- Operator instances.
    TRY_CAST(sum(w.gpu_ns) AS BIGINT) AS gpu_ns,  -- GPU time of these instances, ns.
    TRY_CAST(sum(w.flops_matrix) AS BIGINT) AS flops_matrix,  -- Matrix operations; NULL without a model.
    TRY_CAST(sum(w.flops_vector) AS BIGINT) AS flops_vector,  -- Other operations; NULL without a model.
    TRY_CAST(sum(w.bytes) AS BIGINT) AS bytes,  -- Minimum traffic, bytes; NULL without a model.
    -- Time of the matrix operations at peak, ns; fp32 at the fp32 peak; NULL without a peak.
    sum(u.ideal_ns) AS ideal_ns,
    sum(u.memory_ns) AS memory_ns,  -- Time of the bytes at the memory's bandwidth, ns; NULL for an unknown device.
    -- Ideal time divided by GPU time: a ratio of sums, not a mean of ratios; not clipped.
    sum(u.ideal_ns) / nullif(sum(w.gpu_ns), 0) AS mfu,
    -- mfu with fp32 at the TF32 peak, a lower bound.
    sum(u.ideal_tf32_ns) / nullif(sum(w.gpu_ns), 0) AS mfu_tf32,
    -- Bytes divided by bandwidth and by the GPU time of the instances whose bytes are known; above 1 where operands are
    -- in caches.
    sum(u.memory_ns) / nullif(sum(w.gpu_ns) FILTER (WHERE u.memory_ns IS NOT NULL), 0) AS bandwidth_utilization,
    -- The sum of each instance's larger ideal time, divided by GPU time; NULL without a peak for the type, or if the
    -- bytes of an instance are unknown.
    CASE
        WHEN count(u.ideal_ns) = count(*) AND count(u.memory_ns) = count(*)
            THEN sum(greatest(u.ideal_ns, u.memory_ns)) / nullif(sum(w.gpu_ns), 0)
    END AS roofline_utilization,
    -- True if mfu is above threshold('ideal_suspect'): TF32 where fp32 was assumed, or a wrong peak or shape.
    coalesce(sum(u.ideal_ns) / nullif(sum(w.gpu_ns), 0) > threshold('ideal_suspect'), FALSE) AS suspect,
    -- Lowest confidence in op_work: below 1 if graph replays ran some of the work; NULL if the operators only launched
    -- graphs.
    min(w.confidence) AS confidence
FROM op_work AS w
LEFT JOIN op_utilization AS u ON u.trace_id = w.trace_id AND u.event_id = w.event_id
GROUP BY w.trace_id, w.family, w.dtype, w.not_modelled, u.peak_kind
