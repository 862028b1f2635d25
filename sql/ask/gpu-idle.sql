-- Topic: GPU time
-- Question: How busy are the GPUs, and what do they do?
-- Reading: `idle` is time without any work on the device. `exposed_comm` is communication with no computation beside
-- it: what overlap could save.
SELECT
    t.job, t.rank, b.device, round(b.span_ns / 1e6, 2) AS span_ms, round(b.idle_percent, 1) AS idle_percent,
    round(b.compute_percent, 1) AS compute_percent,
    round(100 * b.exposed_communication_ns / nullif(b.span_ns, 0), 1) AS exposed_comm_percent,
    round(100 * b.exposed_memory_ns / nullif(b.span_ns, 0), 1) AS exposed_memory_percent
FROM temporal_breakdown AS b
JOIN traces AS t ON b.trace_id = t.trace_id
ORDER BY b.idle_percent DESC, t.job, t.rank, b.device, t.trace_id
