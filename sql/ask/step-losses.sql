-- Topic: Steps
-- Question: What is lost in each step, and why?
-- Reading: The percentages of a row add up to 100. Computing is no loss; exposed communication and copies had no
-- computation beside them; idle time is divided by what the launching thread did, as in idle_gaps.
SELECT
    t.job, t.rank, s.step, s.device, round(s.duration_ns / 1e6, 2) AS step_ms,
    round(100 * s.compute_ns / nullif(s.duration_ns, 0), 1) AS compute_percent,
    round(100 * s.exposed_communication_ns / nullif(s.duration_ns, 0), 1) AS exposed_comm_percent,
    round(100 * s.exposed_memory_ns / nullif(s.duration_ns, 0), 1) AS exposed_memory_percent,
    round(100 * s.other_work_ns / nullif(s.duration_ns, 0), 1) AS other_work_percent,
    round(100 * s.idle_blocked_ns / nullif(s.duration_ns, 0), 1) AS blocked_percent,
    round(100 * s.idle_operator_ns / nullif(s.duration_ns, 0), 1) AS operator_percent,
    round(100 * s.idle_host_ns / nullif(s.duration_ns, 0), 1) AS host_percent,
    round(100 * s.idle_launch_ns / nullif(s.duration_ns, 0), 1) AS launch_percent,
    round(100 * s.idle_unknown_ns / nullif(s.duration_ns, 0), 1) AS unknown_percent
FROM step_losses AS s
JOIN traces AS t ON s.trace_id = t.trace_id
ORDER BY s.duration_ns - s.compute_ns DESC, t.job, t.rank, s.step, s.device, t.trace_id
