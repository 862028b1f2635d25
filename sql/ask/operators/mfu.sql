-- Question: How much of the hardware's peak do operators reach?
-- Reading: One row per family and type, and one per reason for GPU work that no formula covers (`not_modelled`, as in
-- `coverage`); `percent` is of all GPU time. `why` explains a share above 100 %, because no operator is faster than the
-- hardware. fp32 is compared with the fp32 peak, so TF32 may exceed it. Otherwise the recorded device, type or shapes
-- are wrong, or the work of one operator counts for another. `confidence` below 1: some operators ran in replays and
-- are identified from a capture.
-- Words: MFU, FLOPS, utilization
WITH whole AS (
    SELECT trace_id, sum(duration_ns) AS gpu_ns FROM op_kernels GROUP BY trace_id
),
parts AS (
    SELECT
        trace_id, family, dtype, peak_kind, n_ops, gpu_ns, mfu, mfu_tf32, bandwidth_utilization, not_modelled,
        confidence
    FROM family_utilization
    UNION ALL
    SELECT trace_id, NULL, NULL, NULL, NULL, sum(duration_ns), NULL, NULL, NULL, not_modelled, NULL
    FROM op_kernels
    WHERE op_event_id IS NULL
    GROUP BY trace_id, not_modelled
)
SELECT
    coalesce(t.job, t.file) AS job, t.rank, f.family, f.dtype, f.peak_kind, f.n_ops,
    round(f.gpu_ns / 1e6, 2) AS gpu_ms, round(100 * f.gpu_ns / nullif(w.gpu_ns, 0), 1) AS percent,
    round(100 * f.mfu, 1) AS mfu_percent,
    round(100 * f.bandwidth_utilization, 1) AS bandwidth_percent,
    CASE
        WHEN f.mfu > 1 AND f.mfu_tf32 <= 1 AND f.dtype = 'fp32'
            THEN 'TF32? Against the peak of TF32 it is ' || CAST(round(100 * f.mfu_tf32, 1) AS VARCHAR) || ' %'
        WHEN f.mfu > 1 THEN 'impossible: the peak, the type, the shapes or the attribution are wrong'
        WHEN f.bandwidth_utilization > 1 THEN 'bandwidth above the memory''s: operands were in a cache'
    END AS why, f.not_modelled, f.confidence
FROM parts AS f
JOIN traces AS t ON f.trace_id = t.trace_id
LEFT JOIN whole AS w ON w.trace_id = f.trace_id
ORDER BY f.gpu_ns DESC, job, t.rank, f.family, f.dtype, f.peak_kind, f.not_modelled, t.trace_id
