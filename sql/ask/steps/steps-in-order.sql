-- Question: How long does each step take, and how much of it does a GPU work?
-- Reading: One row per step of a rank, in order. A step lasts from the end of the previous step's binding event to the
-- end of its own binding event, on the host or the GPU. `host_ns` is the length of its annotation. GPU work counts in
-- the step during which it runs, on the device that works most in it; `slowest-steps` shows each device. NULL: no GPU
-- work.
SELECT
    coalesce(t.job, t.file) AS job, t.rank, s.step, s.duration_ns, s.host_ns, s.busy_ns, s.compute_ns,
    s.communication_ns
FROM step_times AS s
JOIN traces AS t ON s.trace_id = t.trace_id
QUALIFY row_number() OVER (PARTITION BY s.trace_id, s.step ORDER BY s.busy_ns DESC NULLS LAST, s.device) = 1
ORDER BY job, t.rank, t.trace_id, s.step, s.duration_ns
