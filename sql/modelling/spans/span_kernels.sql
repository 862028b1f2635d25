-- One row: a span and a phase, with the number, summed duration and busy time of its GPU activities.
-- How: sums over span_gpu_work. Busy time is the union of the intervals over all streams. A phase without work has no
-- row.
-- check: unique(trace_id, span_id, phase)
WITH work AS (
    SELECT
        w.trace_id, w.span_id, w.phase, w.is_innermost, k.event_id, k.start_ns,
        greatest(k.end_ns, k.start_ns) AS end_ns,
        k.duration_ns
    FROM span_gpu_work AS w
    JOIN kernels AS k ON k.trace_id = w.trace_id AND k.event_id = w.event_id
),
reached AS (
    SELECT
        *,
        max(end_ns) OVER (
            PARTITION BY trace_id, span_id, phase ORDER BY start_ns, event_id
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS reached_ns
    FROM work
)
SELECT
    trace_id,  -- The trace.
    span_id,  -- The span.
    phase,  -- fwd, bwd, recompute, bwd_direct or window, as in span_gpu_work.
    count(*) AS n,  -- GPU activities.
    TRY_CAST(sum(duration_ns) AS BIGINT) AS sum_ns,  -- Summed duration of the activities, ns.
    -- Time in which at least one activity ran, ns.
    TRY_CAST(sum(greatest(end_ns - greatest(start_ns, coalesce(reached_ns, start_ns)), 0)) AS BIGINT) AS busy_ns,
    -- Activities that no span inside this span owns; NULL for window.
    CASE WHEN phase <> 'window' THEN count(*) FILTER (WHERE is_innermost) END AS self_n,
    CASE
        WHEN phase <> 'window' THEN TRY_CAST(coalesce(sum(duration_ns) FILTER (WHERE is_innermost), 0) AS BIGINT)
    END AS self_ns  -- Summed duration of these activities, ns; NULL for window.
FROM reached
GROUP BY trace_id, span_id, phase
