-- Question: How long does each step take, and how much of it does a GPU work?
-- Reading: One row per step of a rank, in order. A step lasts from the end of the previous step's binding event to the
-- end of its own binding event, on the host or the GPU. `host_ns` is the length of its annotation. GPU work counts in
-- the step during which it runs, on the busiest device; `slowest-steps` shows each device. NULL: no GPU work.
SELECT
    coalesce(t.job, t.file) AS job, t.rank, s.step, s.duration_ns, s.host_ns, max(s.busy_ns) AS busy_ns,
    max(s.compute_ns) AS compute_ns, max(s.communication_ns) AS communication_ns
FROM step_times AS s
JOIN traces AS t ON s.trace_id = t.trace_id
GROUP BY t.trace_id, coalesce(t.job, t.file), t.rank, s.step, s.duration_ns, s.host_ns
ORDER BY job, t.rank, t.trace_id, s.step, s.duration_ns
