-- One row: a profiler step of a trace and a device of the trace, divided into kinds of GPU work and idle time. The
-- parts add up to duration_ns. A trace without GPU work has no rows, because it does not record the activity of its
-- devices.
-- How: the step is as in step_times. Communication counts only without computation, and memory only without both, as in
-- temporal_breakdown. idle_causes determines the owners of idle time.
-- check: unique(trace_id, step, device)
WITH busy AS (
    SELECT
        trace_id, step, device,
        sum(CASE WHEN scope = 'exposed communication' THEN ns ELSE 0 END) AS communication_ns,
        sum(CASE WHEN scope = 'exposed memory' THEN ns ELSE 0 END) AS memory_ns
    FROM _scopes_in_steps
    GROUP BY trace_id, step, device
),
steps AS (
    SELECT trace_id, step, start_ns, end_ns FROM step_lengths WHERE duration_ns > 0
),
idle_devices AS (
    SELECT DISTINCT trace_id, device FROM idle_causes
),
of_devices AS (
    SELECT s.*, d.device
    FROM steps AS s
    JOIN idle_devices AS d ON d.trace_id = s.trace_id
),
-- Idle intervals that begin in a step, and idle intervals that begin earlier and reach into a step. Steps do not
-- overlap.
pieces AS (
    SELECT i.trace_id, s.step, i.device, i.cause, i.name, least(i.end_ns, s.end_ns) - i.start_ns AS ns
    FROM idle_causes AS i
    ASOF JOIN steps AS s ON s.trace_id = i.trace_id AND s.start_ns <= i.start_ns
    WHERE i.start_ns < s.end_ns
    UNION ALL
    SELECT s.trace_id, s.step, s.device, i.cause, i.name, least(i.end_ns, s.end_ns) - s.start_ns
    FROM of_devices AS s
    ASOF JOIN idle_causes AS i ON i.trace_id = s.trace_id AND i.device = s.device AND i.start_ns < s.start_ns
    WHERE i.end_ns > s.start_ns
),
cut AS (
    SELECT trace_id, step, device, cause, name, sum(ns) AS ns
    FROM pieces
    GROUP BY trace_id, step, device, cause, name
),
sums AS (
    SELECT trace_id, step, device, cause, sum(ns) AS cause_ns FROM cut GROUP BY trace_id, step, device, cause
),
by_cause AS (
    SELECT
        *, row_number() OVER (PARTITION BY trace_id, step, device ORDER BY cause_ns DESC, cause) AS place
    FROM sums
),
by_name AS (
    SELECT
        trace_id, step, device, cause, name,
        row_number() OVER (PARTITION BY trace_id, step, device, cause ORDER BY ns DESC, name) AS place
    FROM cut
),
parts AS (
    SELECT
        t.trace_id, t.step, t.device, t.start_ns, t.duration_ns, t.busy_ns, t.compute_ns,
        coalesce(b.communication_ns, 0) AS communication_ns, coalesce(b.memory_ns, 0) AS memory_ns,
        i.cause, i.cause_ns, n.name
    FROM step_times AS t
    LEFT JOIN busy AS b ON b.trace_id = t.trace_id AND b.step = t.step AND b.device = t.device
    LEFT JOIN by_cause AS i ON i.trace_id = t.trace_id AND i.step = t.step AND i.device = t.device AND i.place = 1
    LEFT JOIN by_name AS n
        ON n.trace_id = i.trace_id AND n.step = i.step AND n.device = i.device AND n.cause = i.cause AND n.place = 1
    WHERE t.busy_ns IS NOT NULL
)
SELECT
    trace_id,  -- The trace.
    step,  -- Number of the step.
    device,  -- Device.
    start_ns,  -- Start of the step, ns, as in step_lengths.
    duration_ns,  -- Length of the step, ns.
    compute_ns,  -- Time with compute kernels, ns: nothing lost.
    TRY_CAST(communication_ns AS BIGINT) AS exposed_communication_ns,  -- Communication without computation, ns.
    TRY_CAST(memory_ns AS BIGINT) AS exposed_memory_ns,  -- Copies without computation or communication, ns.
    -- Time with only GPU work of other classes, ns.
    TRY_CAST(busy_ns - compute_ns - communication_ns - memory_ns AS BIGINT) AS other_work_ns,
    -- Time in which the device ran nothing, ns: the whole step if it ran nothing in the step.
    TRY_CAST(duration_ns - busy_ns AS BIGINT) AS idle_ns,
    -- Cause with the most idle time, in cause_kinds; NULL without idle time.
    cause AS idle_cause,
    TRY_CAST(cause_ns AS BIGINT) AS idle_cause_ns,  -- Idle time of idle_cause, ns.
    name AS idle_name  -- Name with the most idle time of idle_cause.
FROM parts
