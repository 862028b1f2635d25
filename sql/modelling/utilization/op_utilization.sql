-- One row: an operator instance with a model, with the share of its device's peaks that it reached; one row per kind of
-- peak.
-- How: matrix operations at the dense peak of their type, and bytes at the memory's bandwidth (measured, if there is a
-- measurement), both divided by the GPU time of the instance.
-- check: unique(trace_id, event_id, peak_kind)
WITH placed AS (
    SELECT o.trace_id, o.op_event_id, min(k.device) AS device
    FROM op_kernels AS o
    JOIN kernels AS k ON k.trace_id = o.trace_id AND k.event_id = o.event_id
    WHERE o.op_event_id IS NOT NULL
    GROUP BY o.trace_id, o.op_event_id
),
kinds AS (
    SELECT DISTINCT device_key, peak_kind FROM device_peaks
),
modelled AS (
    SELECT
        w.trace_id, w.event_id, w.op, w.family, w.dtype, w.dims, w.gpu_ns, w.flops_matrix, w.flops_vector, w.bytes,
        w.source, w.confidence, d.device_key, n.peak_kind,
        coalesce(CAST(memory.gigabytes_per_s AS DOUBLE), v.hbm_gigabytes_per_s) AS hbm_gigabytes_per_s,
        CAST(own.tflops AS DOUBLE) AS peak_tflops,
        CAST(
            CASE WHEN w.dtype = 'fp32' THEN coalesce(other.tflops, own.tflops) ELSE own.tflops END AS DOUBLE
        ) AS peak_tf32_tflops
    FROM op_work AS w
    JOIN placed AS p ON p.trace_id = w.trace_id AND p.op_event_id = w.event_id
    LEFT JOIN _work_devices AS d ON d.trace_id = p.trace_id AND d.device = p.device
    LEFT JOIN devices AS v ON v.device_key = d.device_key
    LEFT JOIN kinds AS n ON n.device_key = d.device_key
    LEFT JOIN device_peaks AS own
        ON own.device_key = d.device_key AND own.peak_kind = n.peak_kind AND own.dtype = w.dtype
    LEFT JOIN device_peaks AS memory
        ON memory.device_key = d.device_key AND memory.peak_kind = n.peak_kind AND memory.dtype = 'memory'
    LEFT JOIN device_peaks AS other
        ON other.device_key = d.device_key AND other.peak_kind = n.peak_kind AND other.dtype = 'tf32'
    WHERE w.not_modelled IS NULL
),
timed AS (
    SELECT
        *,
        CASE
            WHEN flops_matrix = 0 AND peak_kind IS NOT NULL THEN 0.0
            ELSE flops_matrix / (peak_tflops * 1000)
        END AS ideal_ns,
        CASE
            WHEN flops_matrix = 0 AND peak_kind IS NOT NULL THEN 0.0
            ELSE flops_matrix / (peak_tf32_tflops * 1000)
        END AS ideal_tf32_ns,
        CAST(bytes AS DOUBLE) / hbm_gigabytes_per_s AS memory_ns,
        CAST(bytes AS DOUBLE) / nullif(gpu_ns, 0) AS gigabytes_per_s
    FROM modelled
)
SELECT
    trace_id,  -- The trace.
    event_id,  -- The operator, as in op_work.
    op,  -- Name of the operator.
    family,  -- Family of its formula.
    dtype,  -- Type that decides the peak; NULL where it is unknown.
    dims,  -- Shapes of its arguments, JSON.
    device_key,  -- Device of the instance; NULL where it is not recognized, and then all utilizations are NULL.
    peak_kind,  -- Source of the peaks: datasheet or measured; NULL for an unknown device.
    gpu_ns,  -- GPU time of its kernels, ns.
    flops_matrix,  -- Matrix operations.
    flops_vector,  -- Other operations, which no utilization includes.
    bytes,  -- Minimum traffic, bytes; NULL where an element's size is unknown.
    ideal_ns,  -- Time of the matrix operations at peak, ns; fp32 at the fp32 peak; NULL without a peak for the type.
    -- ideal_ns with fp32 at the TF32 peak, because a trace does not record whether TF32 was used; equal for other
    -- types.
    ideal_tf32_ns,
    memory_ns,  -- Time of the bytes at the memory's bandwidth, ns; NULL for an unknown device.
    CAST(flops_matrix AS DOUBLE) / nullif(gpu_ns, 0) / 1000 AS tflops,  -- Matrix operations per second, 10^12.
    -- Bytes divided by GPU time, decimal GB/s; above the memory's bandwidth where operands are in a cache.
    gigabytes_per_s,
    -- Matrix operations divided by GPU time and peak, not clipped; NULL without a peak.
    ideal_ns / nullif(gpu_ns, 0) AS mfu,
    ideal_tf32_ns / nullif(gpu_ns, 0) AS mfu_tf32,  -- mfu with fp32 at the TF32 peak, a lower bound.
    -- Bytes divided by GPU time and bandwidth, not clipped.
    gigabytes_per_s / hbm_gigabytes_per_s AS bandwidth_utilization,
    flops_matrix / nullif(CAST(bytes AS DOUBLE), 0) AS intensity,  -- Matrix operations per byte.
    -- Intensity above which operations are the limit and below which bytes are; NULL without a peak.
    peak_tflops * 1000 / hbm_gigabytes_per_s AS ridge,
    -- compute or memory: the larger of the two ideal times; NULL without a peak or bytes.
    CASE
        WHEN ideal_ns < memory_ns OR flops_matrix = 0 AND ideal_ns = memory_ns THEN 'memory'
        WHEN ideal_ns >= memory_ns THEN 'compute'
    END AS bound_by,
    -- The larger ideal time divided by GPU time: how close the instance came to its roofline; NULL without a peak or
    -- bytes.
    CASE
        WHEN ideal_ns IS NOT NULL AND memory_ns IS NOT NULL THEN greatest(ideal_ns, memory_ns) / nullif(gpu_ns, 0)
    END AS roofline_utilization,
    -- True if mfu is above threshold('ideal_suspect'): peak, shapes or attribution are wrong.
    coalesce(ideal_ns / nullif(gpu_ns, 0) > threshold('ideal_suspect'), FALSE) AS suspect,
    -- True if faster than the memory's bandwidth: operands were in a cache.
    coalesce(gigabytes_per_s > hbm_gigabytes_per_s, FALSE) AS cache_resident,
    source,  -- launch, capture or eager, as in op_work.
    confidence  -- As in op_work.
FROM timed
