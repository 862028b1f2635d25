-- One row: a profiler step of a trace and a device, how long it takes, and what the device did in it.
-- How: its length from step_lengths; merged intervals of each class, cut to that; own_busy_ns is only of work that the
-- step launched. Nothing is measured of the GPU in a trace without GPU work.
-- check: unique(trace_id, step, device)
-- In order of start, the part of each piece that no piece before it has.
WITH own AS (
    SELECT
        w.trace_id, w.step, k.device, greatest(k.start_ns, s.start_ns) AS start_ns, least(k.end_ns, s.end_ns) AS end_ns,
        max(least(k.end_ns, s.end_ns)) OVER (
            PARTITION BY w.trace_id, w.step, k.device ORDER BY k.start_ns, k.event_id
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS reached_ns
    FROM _step_work AS w
    JOIN step_lengths AS s ON s.trace_id = w.trace_id AND s.step = w.step
    JOIN kernels AS k ON k.trace_id = w.trace_id AND k.event_id = w.event_id
    WHERE w.is_own AND k.launch_event_id IS NOT NULL
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
    s.start_ns,  -- Start of the step, ns: the end of what bound the step before.
    s.duration_ns,  -- Length of the step, ns: until the end of what binds it, on the host or the GPU.
    s.host_ns,  -- How long its annotation is on the host, ns.
    -- Time with any GPU work, ns; NULL, as all below, in a trace without GPU work.
    TRY_CAST(coalesce(sum(c.ns) FILTER (WHERE c.scope = 'all'), m.none_ns) AS BIGINT) AS busy_ns,
    -- The part of it in which work ran that the step launched, ns; in the rest, only work ran that was launched before
    -- or after it, or whose launch is not in the trace.
    TRY_CAST(coalesce(max(o.ns), m.none_ns) AS BIGINT) AS own_busy_ns,
    -- Time with computing kernels, ns.
    TRY_CAST(coalesce(sum(c.ns) FILTER (WHERE c.scope = 'COMPUTATION'), m.none_ns) AS BIGINT) AS compute_ns,
    -- Time with communication kernels, ns.
    TRY_CAST(coalesce(sum(c.ns) FILTER (WHERE c.scope = 'COMMUNICATION'), m.none_ns) AS BIGINT) AS communication_ns
FROM step_lengths AS s
LEFT JOIN _scopes_in_steps AS c
    ON c.trace_id = s.trace_id AND c.step = s.step AND c.scope NOT IN ('exposed communication', 'exposed memory')
LEFT JOIN own_busy AS o ON o.trace_id = c.trace_id AND o.step = c.step AND o.device = c.device
LEFT JOIN measured AS m ON m.trace_id = s.trace_id
GROUP BY s.trace_id, s.step, c.device, s.start_ns, s.duration_ns, s.host_ns, m.none_ns
