-- Question: How busy are the GPUs, and what do they wait for?
-- Reading: `idle` is time without any work on the device, between its first work and its last. `idle_cause` owns the
-- largest part of this time, as in `why` and `gaps`. `idle_cause_percent` is that part's share of the span. If the
-- cause is `earlier_work`, the GPU may have been busy with work that the trace does not contain. `earlier_percent` is
-- the share of the span with work that was launched before the trace. `exposed_comm` is communication not overlapped
-- with compute, which overlap could save.
-- Words: idle, utilization, bubble
WITH causes_of_idle AS (
    SELECT trace_id, device, cause, sum(duration_ns) AS cause_ns
    FROM idle_causes
    WHERE is_inner
    GROUP BY trace_id, device, cause
),
ranked AS (
    SELECT
        *, row_number() OVER (PARTITION BY trace_id, device ORDER BY cause_ns DESC, cause) AS place
    FROM causes_of_idle
)
SELECT
    coalesce(t.job, t.file) AS job, t.rank, b.device, round(b.span_ns / 1e6, 2) AS span_ms,
    round(b.idle_percent, 1) AS idle_percent, r.cause AS idle_cause,
    round(100 * r.cause_ns / nullif(b.span_ns, 0), 1) AS idle_cause_percent,
    round(b.compute_percent, 1) AS compute_percent,
    round(100 * b.exposed_communication_ns / nullif(b.span_ns, 0), 1) AS exposed_comm_percent,
    round(100 * b.exposed_memory_ns / nullif(b.span_ns, 0), 1) AS exposed_memory_percent,
    round(100 * b.earlier_ns / nullif(b.span_ns, 0), 1) AS earlier_percent
FROM temporal_breakdown AS b
JOIN traces AS t ON b.trace_id = t.trace_id
LEFT JOIN ranked AS r ON r.trace_id = b.trace_id AND r.device = b.device AND r.place = 1
ORDER BY b.idle_percent DESC, job, t.rank, b.device, t.trace_id
