-- Topic: Steps
-- Question: Which steps are the slowest, and is it computing, communicating or waiting?
-- Reading: One row per step of a rank and device. Where `busy` stays and the step grows, look at the host. NULL: the
-- trace has no GPU work.
WITH gpu AS (
    SELECT trace_id, sum(n_kernels) AS n_kernels FROM temporal_breakdown GROUP BY trace_id
)
SELECT
    coalesce(t.job, t.file) AS job, t.rank,
    s.step, s.device, round(s.duration_ns / 1e6, 2) AS step_ms,
    CASE WHEN g.n_kernels > 0 THEN round(s.busy_ns / 1e6, 2) END AS busy_ms,
    CASE WHEN g.n_kernels > 0 THEN round(s.compute_ns / 1e6, 2) END AS compute_ms,
    CASE WHEN g.n_kernels > 0 THEN round(s.communication_ns / 1e6, 2) END AS communication_ms
FROM step_times AS s
JOIN traces AS t ON s.trace_id = t.trace_id
JOIN gpu AS g ON s.trace_id = g.trace_id
ORDER BY s.duration_ns DESC, job, t.rank, s.step, s.device, t.trace_id
