-- One row: a piece of GPU work that runs during a profiler step.
-- How: it starts in the step, or the step starts while it runs. Time is cut into parts longer than the step, or longer
-- than the work, as in _steps_in_parts.
-- check: unique(trace_id, event_id, step)
WITH step_lengths AS (
    SELECT DISTINCT trace_id, part_ns FROM _steps_in_parts
),
stepped AS (
    SELECT DISTINCT trace_id FROM step_lengths
),
starts AS (
    SELECT k.trace_id, k.event_id, k.start_ns, k.end_ns, l.part_ns, k.start_ns // l.part_ns AS part
    FROM kernels AS k
    JOIN step_lengths AS l ON l.trace_id = k.trace_id
),
work AS (
    SELECT
        k.trace_id, k.event_id, k.start_ns, k.end_ns,
        CAST(pow(2, ceil(ln(greatest(k.end_ns - k.start_ns, 1)) / ln(2)) + 1) AS BIGINT) AS part_ns
    FROM kernels AS k
    JOIN stepped AS s ON s.trace_id = k.trace_id
),
work_lengths AS (
    SELECT DISTINCT trace_id, part_ns FROM work
),
work_parts AS (
    SELECT *, start_ns // part_ns AS part FROM work
    UNION ALL
    SELECT *, end_ns // part_ns AS part FROM work WHERE end_ns // part_ns > start_ns // part_ns
),
step_starts AS (
    SELECT s.trace_id, s.step, s.start_ns, l.part_ns, s.start_ns // l.part_ns AS part
    FROM profiler_steps AS s
    JOIN work_lengths AS l ON l.trace_id = s.trace_id
)
SELECT
    k.trace_id,  -- The trace.
    k.event_id,  -- The work.
    s.step  -- Number of the step.
FROM starts AS k
JOIN _steps_in_parts AS s ON s.trace_id = k.trace_id AND s.part_ns = k.part_ns AND s.part = k.part
WHERE k.start_ns >= s.start_ns AND k.start_ns < s.end_ns AND k.end_ns > s.start_ns
UNION ALL
SELECT k.trace_id, k.event_id, s.step
FROM step_starts AS s
JOIN work_parts AS k ON k.trace_id = s.trace_id AND k.part_ns = s.part_ns AND k.part = s.part
WHERE k.start_ns < s.start_ns AND k.end_ns > s.start_ns
