-- Question: Which steps are the slowest, and is it computing, communicating or waiting?
-- Reading: One row per step of a rank and device; `host_ms` is the length of its annotation on the host. If the step
-- grows but `busy` does not, check the host. NULL: the trace has no GPU work.
SELECT
    coalesce(t.job, t.file) AS job, t.rank,
    s.step, s.device, round(s.duration_ns / 1e6, 2) AS step_ms,
    round(s.host_ns / 1e6, 2) AS host_ms,
    round(s.busy_ns / 1e6, 2) AS busy_ms,
    round(s.compute_ns / 1e6, 2) AS compute_ms,
    round(s.communication_ns / 1e6, 2) AS communication_ms
FROM step_times AS s
JOIN traces AS t ON s.trace_id = t.trace_id
ORDER BY s.duration_ns DESC, job, t.rank, s.step, s.device, t.trace_id
