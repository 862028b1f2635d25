-- One row: a profiler step of a trace and a device, with what the device did between the step's start and end.
-- How: merged intervals of each class, cut to the step as the CPU ran it, so GPU work that runs late counts in the next
-- step; own_busy_ns is only of work that the step launched. Nothing is measured of the GPU in a trace without GPU work.
-- check: unique(trace_id, step, device)
-- In order of start, the part of each piece that no piece before it has. Materialized: DuckDB may otherwise join each
-- launch with all steps before it.
WITH running AS MATERIALIZED (
    SELECT
        s.trace_id, s.step, s.start_ns AS step_start_ns, s.end_ns AS step_end_ns, k.event_id, k.device, k.start_ns,
        k.end_ns, k.launch_event_id
    FROM _kernel_steps AS r
    JOIN profiler_steps AS s ON s.trace_id = r.trace_id AND s.step = r.step
    JOIN kernels AS k ON k.trace_id = r.trace_id AND k.event_id = r.event_id
),
own AS (
    SELECT
        r.trace_id, r.step, r.device, greatest(r.start_ns, r.step_start_ns) AS start_ns,
        least(r.end_ns, r.step_end_ns) AS end_ns,
        max(least(r.end_ns, r.step_end_ns)) OVER (
            PARTITION BY r.trace_id, r.step, r.device ORDER BY r.start_ns, r.event_id
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS reached_ns
    FROM running AS r
    JOIN events AS l ON l.trace_id = r.trace_id AND l.event_id = r.launch_event_id
    WHERE l.start_ns >= r.step_start_ns
),
own_busy AS (
    SELECT
        trace_id, step, device,
        sum(greatest(end_ns - greatest(start_ns, coalesce(reached_ns, start_ns)), 0)) AS ns
    FROM own
    GROUP BY trace_id, step, device
),
measured AS (SELECT DISTINCT trace_id, 0 AS none_ns FROM merged_intervals)
SELECT
    s.trace_id,  -- The trace.
    s.step,  -- Number of the step.
    c.device,  -- Device; NULL where no device did anything in the step.
    s.start_ns,  -- Start of the step on the CPU, ns.
    s.duration_ns,  -- Duration of the step on the CPU, ns.
    -- Time with any GPU work, ns; NULL, as all below, in a trace without GPU work.
    TRY_CAST(coalesce(sum(c.ns) FILTER (WHERE c.scope = 'all'), m.none_ns) AS BIGINT) AS busy_ns,
    -- The part of it in which work ran that the step launched, ns; in the rest, only work ran that was launched before
    -- it, or whose launch is not in the trace.
    TRY_CAST(coalesce(max(o.ns), m.none_ns) AS BIGINT) AS own_busy_ns,
    -- Time with computing kernels, ns.
    TRY_CAST(coalesce(sum(c.ns) FILTER (WHERE c.scope = 'COMPUTATION'), m.none_ns) AS BIGINT) AS compute_ns,
    -- Time with communication kernels, ns.
    TRY_CAST(coalesce(sum(c.ns) FILTER (WHERE c.scope = 'COMMUNICATION'), m.none_ns) AS BIGINT) AS communication_ns
FROM profiler_steps AS s
LEFT JOIN _scopes_in_steps AS c
    ON c.trace_id = s.trace_id AND c.step = s.step AND c.scope NOT IN ('exposed communication', 'exposed memory')
LEFT JOIN own_busy AS o ON o.trace_id = c.trace_id AND o.step = c.step AND o.device = c.device
LEFT JOIN measured AS m ON m.trace_id = s.trace_id
GROUP BY s.trace_id, s.step, c.device, s.start_ns, s.duration_ns, m.none_ns
