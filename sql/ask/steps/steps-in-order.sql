-- Question: How long does each step take, and how much of it does a GPU work?
-- Reading: One row per step of a rank, in order. GPU work counts in the step during which it runs, on the device that
-- works most; `slowest-steps` has each device. NULL: no GPU work.
SELECT
    coalesce(t.job, t.file) AS job, t.rank, p.step, p.duration_ns, max(s.busy_ns) AS busy_ns,
    max(s.compute_ns) AS compute_ns, max(s.communication_ns) AS communication_ns
FROM profiler_steps AS p
JOIN traces AS t ON p.trace_id = t.trace_id
LEFT JOIN step_times AS s ON s.trace_id = p.trace_id AND s.step = p.step AND s.device IS NOT NULL
GROUP BY t.trace_id, coalesce(t.job, t.file), t.rank, p.step, p.duration_ns
ORDER BY job, t.rank, t.trace_id, p.step, p.duration_ns
