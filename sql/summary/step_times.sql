-- One row: a profiler step of a trace and a device of the trace, with the length of the step and the device's work in
-- it. A device that runs nothing in a step has a row, too.
-- How: the length comes from step_lengths. Merged intervals of each class are clipped to the step. own_busy_ns covers
-- only work that the step launched. In a trace without GPU work, all GPU columns are NULL.
-- check: unique(trace_id, step, device)
-- reached_ns is the end of earlier activities, so that overlapping time counts once.
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
devices AS (SELECT DISTINCT trace_id, device, 0 AS none_ns FROM merged_intervals)
SELECT
    s.trace_id,  -- The trace.
    s.step,  -- Number of the step.
    d.device,  -- Device; NULL in a trace without GPU work.
    s.start_ns,  -- Start of the step, ns: the end of the activity that bound the step before.
    s.duration_ns,  -- Length of the step, ns: until the end of the host or GPU activity that bounds it.
    s.host_ns,  -- Duration of its annotation on the host, ns.
    -- Time with any GPU work, ns; NULL, like all columns below, in a trace without GPU work.
    TRY_CAST(coalesce(sum(c.ns) FILTER (WHERE c.scope = 'all'), d.none_ns) AS BIGINT) AS busy_ns,
    -- Part of busy_ns with work that the step launched, ns. The rest has only work that was launched before or after
    -- the step, or whose launch is not in the trace.
    TRY_CAST(coalesce(max(o.ns), d.none_ns) AS BIGINT) AS own_busy_ns,
    -- Time with computing kernels, ns.
    TRY_CAST(coalesce(sum(c.ns) FILTER (WHERE c.scope = 'COMPUTATION'), d.none_ns) AS BIGINT) AS compute_ns,
    -- Time with communication kernels, ns.
    TRY_CAST(coalesce(sum(c.ns) FILTER (WHERE c.scope = 'COMMUNICATION'), d.none_ns) AS BIGINT) AS communication_ns
FROM step_lengths AS s
LEFT JOIN devices AS d ON d.trace_id = s.trace_id
LEFT JOIN _scopes_in_steps AS c
    ON c.trace_id = s.trace_id AND c.step = s.step AND c.device IS NOT DISTINCT FROM d.device
        AND c.scope NOT IN ('exposed communication', 'exposed memory')
LEFT JOIN own_busy AS o
    ON o.trace_id = s.trace_id AND o.step = s.step AND o.device IS NOT DISTINCT FROM d.device
GROUP BY s.trace_id, s.step, d.device, s.start_ns, s.duration_ns, s.host_ns, d.none_ns
