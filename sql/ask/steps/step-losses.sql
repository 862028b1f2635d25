-- Question: What is lost in each step, and why?
-- Reading: The shares of compute, communication, memory, other work and idle add up to 100. Exposed communication and
-- copies are those not overlapped with compute. `idle_cause` owns the largest part of the idle time, as in `gaps`, and
-- `idle_cause_percent` is its share of the step.
-- Words: bubble, idle, exposed communication
SELECT
    coalesce(t.job, t.file) AS job, t.rank, s.step, s.device, round(s.duration_ns / 1e6, 2) AS step_ms,
    round(100 * s.compute_ns / nullif(s.duration_ns, 0), 1) AS compute_percent,
    round(100 * s.exposed_communication_ns / nullif(s.duration_ns, 0), 1) AS exposed_comm_percent,
    round(100 * s.exposed_memory_ns / nullif(s.duration_ns, 0), 1) AS exposed_memory_percent,
    round(100 * s.other_work_ns / nullif(s.duration_ns, 0), 1) AS other_work_percent,
    round(100 * s.idle_ns / nullif(s.duration_ns, 0), 1) AS idle_percent, s.idle_cause,
    round(100 * s.idle_cause_ns / nullif(s.duration_ns, 0), 1) AS idle_cause_percent, s.idle_name
FROM step_losses AS s
JOIN traces AS t ON s.trace_id = t.trace_id
ORDER BY s.duration_ns - s.compute_ns DESC, job, t.rank, s.step, s.device, t.trace_id
