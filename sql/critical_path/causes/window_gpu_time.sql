-- One row: a window that the critical path covers, and how long the GPU works in it.
-- How: the union of the window's GPU work, and of its kernels that compute. Its steps are those whose annotations it
-- holds, found by parts of time longer than the window, as in _clip.
-- check: unique(trace_id, window_id)
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
    SELECT s.trace_id, s.step, s.start_ns, s.end_ns, l.part_ns, s.start_ns // l.part_ns AS part
    FROM profiler_steps AS s
    JOIN lengths AS l ON l.trace_id = s.trace_id
),
inside AS (
    SELECT
        w.window_no, s.step,
        greatest(least(n.end_ns, w.path_end_ns) - greatest(n.start_ns, w.path_start_ns), 0) AS duration_ns
    FROM parts AS w
    JOIN step_parts AS s ON s.trace_id = w.trace_id AND s.part_ns = w.part_ns AND s.part = w.part
    JOIN step_lengths AS n ON n.trace_id = s.trace_id AND n.step = s.step
    WHERE s.start_ns >= w.start_ns AND s.end_ns <= w.end_ns
),
stepped AS (
    SELECT DISTINCT trace_id, 0 AS none FROM profiler_steps
)
SELECT
    w.trace_id,  -- The trace.
    w.window_id,  -- The window: full, or a step.
    w.path_end_ns - w.path_start_ns AS length_ns,  -- Its length, ns.
    b.busy_ns,  -- Time in which GPU work ran, ns.
    b.computing_ns,  -- Time in which kernels ran that compute (neither copies nor communication), ns.
    count(s.step) + t.none AS n_steps,  -- Profiler steps that lie in it; NULL in a trace without steps.
    -- Time of these steps, ns: their lengths in step_lengths, as far as they lie in the window; NULL without steps.
    TRY_CAST(sum(s.duration_ns) AS BIGINT) AS steps_ns
FROM _window_work AS b
JOIN critical_path_windows AS w ON w.window_no = b.window_no
LEFT JOIN inside AS s ON s.window_no = w.window_no
LEFT JOIN stepped AS t ON t.trace_id = w.trace_id
GROUP BY w.trace_id, w.window_id, w.path_start_ns, w.path_end_ns, b.busy_ns, b.computing_ns, t.none
