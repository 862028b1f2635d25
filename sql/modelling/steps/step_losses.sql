-- One row: a profiler step of a trace and a device, divided into what the device did and why it did nothing. The parts
-- add up to duration_ns. A trace without GPU work has no rows: nothing says what its devices did.
-- How: the step as the CPU ran it, as in step_times; communication and memory count where nothing before them in this
-- order hides them, as in temporal_breakdown; who owns the idle time is in idle_causes.
-- check: unique(trace_id, step, device)
WITH busy AS (
    SELECT
        trace_id, step, device,
        sum(CASE WHEN scope = 'exposed communication' THEN ns ELSE 0 END) AS communication_ns,
        sum(CASE WHEN scope = 'exposed memory' THEN ns ELSE 0 END) AS memory_ns
    FROM _scopes_in_steps
    GROUP BY trace_id, step, device
),
step_lengths AS (
    SELECT DISTINCT trace_id, part_ns FROM _steps_in_parts
),
-- The part is a column before any step is met, as in _clip.
idle_parts AS (
    SELECT i.*, l.part_ns, i.start_ns // l.part_ns AS part
    FROM idle_causes AS i
    JOIN step_lengths AS l ON l.trace_id = i.trace_id
),
idle_devices AS (
    SELECT DISTINCT trace_id, device FROM idle_causes
),
idle_marks AS (
    SELECT
        trace_id, device, start_ns AS at_ns, 1 AS turn, start_ns, CAST(NULL AS BIGINT) AS step,
        CAST(NULL AS BIGINT) AS step_end_ns
    FROM idle_causes
    UNION ALL
    SELECT s.trace_id, d.device, s.start_ns, 0, NULL, s.step, s.end_ns
    FROM profiler_steps AS s
    JOIN idle_devices AS d ON d.trace_id = s.trace_id
),
-- The last idle stretch of a device that began before the step, and may last into it.
begun AS (
    SELECT
        trace_id, device, step, at_ns, step_end_ns,
        max(start_ns) OVER (
            PARTITION BY trace_id, device ORDER BY at_ns, turn ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        ) AS start_ns
    FROM idle_marks
),
pieces AS (
    SELECT s.trace_id, s.step, i.device, i.cause, i.name, least(i.end_ns, s.end_ns) - i.start_ns AS ns
    FROM idle_parts AS i
    JOIN _steps_in_parts AS s ON s.trace_id = i.trace_id AND s.part_ns = i.part_ns AND s.part = i.part
    WHERE i.start_ns >= s.start_ns AND i.start_ns < s.end_ns
    UNION ALL
    SELECT b.trace_id, b.step, b.device, i.cause, i.name, least(i.end_ns, b.step_end_ns) - b.at_ns
    FROM begun AS b
    JOIN idle_causes AS i ON i.trace_id = b.trace_id AND i.device = b.device AND i.start_ns = b.start_ns
    WHERE b.step IS NOT NULL AND i.end_ns > b.at_ns
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
    device,  -- Device; NULL where no device did anything in the step.
    start_ns,  -- Start of the step on the CPU, ns.
    duration_ns,  -- Duration of the step on the CPU, ns.
    compute_ns,  -- Time with computing kernels, ns: nothing lost.
    TRY_CAST(communication_ns AS BIGINT) AS exposed_communication_ns,  -- Communication without computation, ns.
    TRY_CAST(memory_ns AS BIGINT) AS exposed_memory_ns,  -- Copies without computation or communication, ns.
    -- Only GPU work of no such class, ns.
    TRY_CAST(busy_ns - compute_ns - communication_ns - memory_ns AS BIGINT) AS other_work_ns,
    -- Time in which it ran nothing, ns: all of the step where no device did anything in it.
    TRY_CAST(duration_ns - busy_ns AS BIGINT) AS idle_ns,
    cause AS idle_cause,  -- The cause in cause_kinds that owns most of it; NULL where nothing ran, or it never idles.
    TRY_CAST(cause_ns AS BIGINT) AS idle_cause_ns,  -- Its part of the idle time, ns.
    name AS idle_name  -- The name with the most of that.
FROM parts
