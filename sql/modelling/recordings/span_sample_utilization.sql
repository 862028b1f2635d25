-- One row: a span of a sampled step, with the share of the hardware's peak that it reached; one row per kind of peak.
-- How: the work of its inputs (span_sample_work) divided by its time and the device's peaks, as in span_utilization.
-- Spans of a census are excluded, because their times are too long. A duration that is not the duration of the work
-- yields no ratios (not_measured).
-- scope: lake
-- check: unique(recording_id, step, span_id, peak_kind)
WITH kinds AS (
    SELECT DISTINCT device_key, peak_kind FROM device_peaks
),
placed AS (
    -- A device that matches no rule may have measured peaks under its own name.
    SELECT
        r.recording_id,
        k.device_key,
        k.peak_kind,
        coalesce(CAST(m.gigabytes_per_s AS DOUBLE), v.hbm_gigabytes_per_s) AS memory_gigabytes_per_s
    FROM recordings AS r
    LEFT JOIN recording_devices AS f ON f.recording_id = r.recording_id
    JOIN kinds AS k ON k.device_key = coalesce(f.device_key, replace(r.device_name, ',', ';'))
    LEFT JOIN devices AS v ON v.device_key = k.device_key
    LEFT JOIN device_peaks AS m ON m.device_key = k.device_key AND m.peak_kind = k.peak_kind AND m.dtype = 'memory'
),
rated AS (
    SELECT
        w.*, p.device_key, p.peak_kind, p.memory_gigabytes_per_s,
        CAST(own.tflops AS DOUBLE) AS tflops,
        CAST(
            CASE WHEN w.dtype = 'fp32' THEN coalesce(other.tflops, own.tflops) ELSE own.tflops END AS DOUBLE
        ) AS tf32_tflops
    FROM span_sample_work AS w
    LEFT JOIN placed AS p ON p.recording_id = w.recording_id
    LEFT JOIN device_peaks AS own
        ON own.device_key = p.device_key AND own.peak_kind = p.peak_kind AND own.dtype = w.dtype
    LEFT JOIN device_peaks AS other
        ON other.device_key = p.device_key AND other.peak_kind = p.peak_kind AND other.dtype = 'tf32'
),
work AS (
    SELECT
        recording_id, name, phase, input_shapes, input_dtypes, device_key, peak_kind, memory_gigabytes_per_s,
        sum(n_ops) AS n_ops, sum(n_ops_not_modelled) AS n_ops_not_modelled,
        sum(flops_matrix) AS flops_matrix,
        sum(flops_recompute) AS flops_recompute,
        CASE WHEN NOT bool_or(bytes IS NULL AND n_ops > n_ops_not_modelled) THEN sum(bytes) END AS bytes,
        sum(
            CASE WHEN tflops IS NULL AND flops_matrix > 0 THEN n_ops - n_ops_not_modelled ELSE 0 END
        ) AS n_ops_without_peak,
        sum(
            CASE WHEN flops_matrix = 0 AND peak_kind IS NOT NULL THEN 0 ELSE flops_matrix / (tflops * 1000) END
        ) AS ideal_ns,
        sum(
            CASE WHEN flops_matrix = 0 AND peak_kind IS NOT NULL THEN 0 ELSE flops_matrix / (tf32_tflops * 1000) END
        ) AS ideal_tf32_ns,
        sum(
            CASE WHEN flops_matrix = 0
                    AND peak_kind IS NOT NULL THEN 0 ELSE (flops_matrix - flops_recompute) / (tflops * 1000)
            END
        ) AS ideal_once_ns,
        sum(
            CASE WHEN flops_matrix = 0
                    AND peak_kind IS NOT NULL THEN 0 ELSE (flops_matrix - flops_recompute) / (tf32_tflops * 1000)
            END
        ) AS ideal_once_tf32_ns
    FROM rated
    GROUP BY recording_id, name, phase, input_shapes, input_dtypes, device_key, peak_kind, memory_gigabytes_per_s
),
spans AS (
    SELECT
        s.recording_id, r.run_id, r.rank, s.step, s.span_id, s.parent_id, s.depth, s.name, s.class, s.phase,
        s.duration_ns,
        w.recording_id IS NOT NULL AS is_counted,
        CASE
            WHEN s.clock = 'host_calls' THEN 'host_calls'
            WHEN s.clock <> r.source THEN 'other_device'
            WHEN w.ideal_tf32_ns > threshold('ideal_suspect') * s.duration_ns THEN 'too_short'
        END AS not_measured,
        w.n_ops, w.n_ops_not_modelled, w.n_ops_without_peak, w.flops_matrix, w.flops_recompute, w.bytes,
        w.device_key, w.peak_kind, w.ideal_ns, w.ideal_tf32_ns, w.ideal_once_ns, w.ideal_once_tf32_ns,
        w.bytes / w.memory_gigabytes_per_s AS memory_ns
    FROM span_samples AS s
    JOIN recordings AS r ON r.recording_id = s.recording_id
    LEFT JOIN work AS w
        ON w.recording_id = s.recording_id AND w.name = s.name AND w.phase = s.phase
            AND w.input_shapes IS NOT DISTINCT FROM s.input_shapes
            AND w.input_dtypes IS NOT DISTINCT FROM s.input_dtypes
            AND NOT coalesce(contains(s.input_shapes, 'null'), FALSE)
    WHERE NOT s.is_census AND NOT s.is_failed
),
timed AS (
    -- The time that the ratios refer to.
    SELECT *, CASE WHEN not_measured IS NULL THEN nullif(duration_ns, 0) END AS over_ns FROM spans
)
SELECT
    t.recording_id,  -- The recording, in recordings.
    t.run_id,  -- The run.
    t.rank,  -- Rank; NULL if not recorded.
    t.step,  -- Number of the step in its loop.
    t.span_id,  -- The span within its step.
    t.parent_id,  -- Enclosing span; NULL for the step.
    t.depth,  -- Nesting depth, 0 for the step.
    t.name,  -- Module, or step.
    t.class,  -- Class of the module.
    t.phase,  -- step, forward, backward or recompute. Never add up nested spans.
    -- Duration by the span's clock, ns; on a GPU, from the time at which the stream reached the span to the time at
    -- which it left the span.
    t.duration_ns,
    -- inputs_not_counted if no census had such inputs, so that the span's work is unknown; else NULL.
    CASE WHEN NOT t.is_counted THEN 'inputs_not_counted' END AS not_modelled,
    -- Reason why there are no ratios: host_calls (the duration covers the host's calls, and the work ran at another
    -- time), other_device (not the device of the peaks), or too_short (less than the time of the work at peak, so some
    -- work ran at another time or on another stream); else NULL.
    t.not_measured,
    CAST(t.n_ops AS BIGINT) AS n_ops,  -- Operators that ran in the span; NULL where its work is unknown.
    -- Operators without a model: read every other number with this in mind.
    CAST(t.n_ops_not_modelled AS BIGINT) AS n_ops_not_modelled,
    -- Matrix operations, including those of a recomputed forward; NULL without a model.
    CAST(t.flops_matrix AS BIGINT) AS flops_matrix,
    -- Matrix operations of a recomputed forward (activation checkpointing).
    CAST(t.flops_recompute AS BIGINT) AS flops_recompute,
    -- Minimum traffic, bytes; NULL without a model, or if the traffic of any operator with a model is unknown.
    CAST(t.bytes AS BIGINT) AS bytes,
    CAST(t.flops_matrix AS DOUBLE) / t.over_ns / 1000 AS tflops,  -- Matrix operations per second, 10^12.
    CAST(t.bytes AS DOUBLE) / t.over_ns AS gigabytes_per_s,  -- Bytes per second, decimal GB/s.
    t.device_key,  -- The device; NULL where unknown, and then all following columns are NULL.
    t.peak_kind,  -- Source of the peaks: datasheet or measured.
    -- Operators with matrix operations in a type without a peak: ideal_ns does not include them.
    CAST(t.n_ops_without_peak AS BIGINT) AS n_ops_without_peak,
    t.ideal_ns,  -- Time of the matrix operations at the peaks of their types, ns; fp32 at the fp32 peak.
    t.memory_ns,  -- Time of the bytes at the memory's bandwidth, ns; NULL without bytes.
    -- Ideal time of the model's work (without recomputation) divided by the duration, not clipped; NULL where
    -- not_measured is set, like all ratios.
    t.ideal_once_ns / t.over_ns AS mfu_wall,
    t.ideal_once_tf32_ns / t.over_ns AS mfu_wall_tf32,  -- mfu_wall with fp32 at the TF32 peak, a lower bound.
    t.ideal_ns / t.over_ns AS hfu_wall,  -- mfu_wall for all work that ran, including recomputation.
    t.ideal_tf32_ns / t.over_ns AS hfu_wall_tf32,  -- hfu_wall with fp32 at the TF32 peak.
    -- Bytes divided by the duration and the memory's bandwidth; above 1 where operands are in caches.
    t.memory_ns / t.over_ns AS bandwidth_utilization,
    t.flops_matrix / nullif(CAST(t.bytes AS DOUBLE), 0) AS intensity,  -- Matrix operations per byte.
    -- compute or memory: the larger of the two ideal times.
    CASE WHEN t.ideal_ns >= t.memory_ns THEN 'compute' WHEN t.ideal_ns < t.memory_ns THEN 'memory' END AS bound_by,
    -- The larger ideal time divided by the duration; NULL without a peak for any of the types, or without bytes.
    CASE
        WHEN t.ideal_ns IS NOT NULL AND t.memory_ns IS NOT NULL THEN greatest(t.ideal_ns, t.memory_ns) / t.over_ns
    END AS roofline_utilization,
    -- True if the ideal time is more than threshold('ideal_suspect') times the duration: TF32 where fp32 was assumed, a
    -- wrong peak, or a duration that is not the work's.
    coalesce(t.ideal_ns / nullif(t.duration_ns, 0) > threshold('ideal_suspect'), FALSE) AS suspect
FROM timed AS t
