-- Question: Which long kernels may get slower without delaying anything?
-- Reading: Kernels off the critical path. `slack` is how much longer a kernel may get before the path gets longer.
-- These kernels are candidates to give up SMs or bandwidth.
SELECT
    coalesce(t.job, t.file) AS job, t.rank,
    k.name, round(k.duration_ns / 1e3, 1) AS duration_us, round(s.slack_ns / 1e3, 1) AS slack_us,
    k.device, k.stream, k.event_id
FROM event_slack AS s
JOIN kernels AS k ON k.trace_id = s.trace_id AND k.event_id = s.event_id
JOIN traces AS t ON t.trace_id = s.trace_id
WHERE s.window_id = 'full' AND s.slack_ns > 0
ORDER BY k.duration_ns DESC, job, t.rank, k.event_id, t.trace_id
