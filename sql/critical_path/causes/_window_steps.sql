-- One row: a window that contains profiler steps.
-- How: the steps whose annotations are inside the window. As in _clip, parts of time longer than the window limit the
-- search.
-- check: unique(window_no)
WITH windows AS (
    SELECT
        window_no, trace_id, start_ns, end_ns, path_start_ns, path_end_ns,
        CAST(pow(2, ceil(ln(greatest(end_ns - start_ns, 1)) / ln(2)) + 1) AS BIGINT) AS part_ns
    FROM critical_path_windows
),
parts AS (
    SELECT *, start_ns // part_ns AS part FROM windows
    UNION ALL
    SELECT *, end_ns // part_ns AS part FROM windows WHERE end_ns // part_ns > start_ns // part_ns
),
lengths AS (
    SELECT DISTINCT trace_id, part_ns FROM windows
),
step_parts AS (
    SELECT
        s.trace_id, s.step, s.start_ns, s.end_ns, l.part_ns, s.start_ns // l.part_ns AS part
    FROM profiler_steps AS s
    JOIN lengths AS l ON l.trace_id = s.trace_id
)
SELECT
    w.window_no,  -- The window.
    count(*) AS n_steps,  -- Number of steps inside the window.
    -- Time of these steps, ns: their lengths in step_lengths, clipped to the window.
    TRY_CAST(
        sum(greatest(least(n.end_ns, w.path_end_ns) - greatest(n.start_ns, w.path_start_ns), 0)) AS BIGINT
    ) AS steps_ns,
    -- Median of these lengths, ns.
    TRY_CAST(
        median(greatest(least(n.end_ns, w.path_end_ns) - greatest(n.start_ns, w.path_start_ns), 0)) AS BIGINT
    ) AS median_step_ns
FROM parts AS w
JOIN step_parts AS s ON s.trace_id = w.trace_id AND s.part_ns = w.part_ns AND s.part = w.part
JOIN step_lengths AS n ON n.trace_id = s.trace_id AND n.step = s.step
WHERE s.start_ns >= w.start_ns AND s.end_ns <= w.end_ns
GROUP BY w.window_no
