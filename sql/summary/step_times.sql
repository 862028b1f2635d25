-- One row: a profiler step of a trace and a device, with what the device did between the step's start and end.
-- How: merged intervals of each class, cut to the step as the CPU ran it, so GPU work that runs late counts in the next
-- step.
-- check: unique(trace_id, step, device)
WITH cut AS (
    SELECT
        s.trace_id, s.step, i.device, i.scope,
        sum(least(i.end_ns, s.end_ns) - greatest(i.start_ns, s.start_ns)) AS ns
    FROM profiler_steps AS s
    JOIN merged_intervals AS i ON i.trace_id = s.trace_id AND i.start_ns < s.end_ns AND i.end_ns > s.start_ns
    GROUP BY s.trace_id, s.step, i.device, i.scope
)
SELECT
    s.trace_id,  -- The trace.
    s.step,  -- Number of the step.
    c.device,  -- Device; NULL where no device did anything in the step.
    s.start_ns,  -- Start of the step on the CPU, ns.
    s.duration_ns,  -- Duration of the step on the CPU, ns.
    -- Time with any GPU work, ns.
    TRY_CAST(coalesce(sum(c.ns) FILTER (WHERE c.scope = 'all'), 0) AS BIGINT) AS busy_ns,
    -- Time with computing kernels, ns.
    TRY_CAST(coalesce(sum(c.ns) FILTER (WHERE c.scope = 'COMPUTATION'), 0) AS BIGINT) AS compute_ns,
    -- Time with communication kernels, ns.
    TRY_CAST(coalesce(sum(c.ns) FILTER (WHERE c.scope = 'COMMUNICATION'), 0) AS BIGINT) AS communication_ns
FROM profiler_steps AS s
LEFT JOIN cut AS c ON c.trace_id = s.trace_id AND c.step = s.step
GROUP BY s.trace_id, s.step, c.device, s.start_ns, s.duration_ns
