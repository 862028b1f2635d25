-- One row: a cause of a profiler step's length. The durations of a step's rows add up to the time that the path spends
-- in the step.
-- How: cut the critical path of the whole trace at the ends of steps (step_lengths). The rows of all steps add up to
-- the time of that path between the start of the first step and the end of the last.
-- check: unique(trace_id, step, cause, name)
WITH steps AS (
    SELECT trace_id, step, start_ns, end_ns FROM step_lengths WHERE duration_ns > 0
),
pieces AS (
    SELECT
        w.trace_id, p.window_no, p.row_no, w.path_start_ns + p.at_ns AS start_ns,
        w.path_start_ns + lead(p.at_ns, 1, w.path_end_ns - w.path_start_ns) OVER (
            PARTITION BY p.window_no ORDER BY p.piece_no
        ) AS end_ns
    FROM _cause_pieces AS p
    JOIN critical_path_windows AS w ON w.window_no = p.window_no
    JOIN _asked_windows AS a ON a.window_no = w.window_no AND a.annotation = '' AND a.covers_window
),
-- Pieces that begin in a step, and pieces that begin before a step and reach into it. Steps do not overlap.
cut AS (
    SELECT p.trace_id, s.step, p.window_no, p.row_no, least(p.end_ns, s.end_ns) - p.start_ns AS duration_ns
    FROM pieces AS p
    ASOF JOIN steps AS s ON s.trace_id = p.trace_id AND s.start_ns <= p.start_ns
    WHERE p.start_ns < s.end_ns
    UNION ALL
    SELECT s.trace_id, s.step, p.window_no, p.row_no, least(p.end_ns, s.end_ns) - s.start_ns
    FROM steps AS s
    ASOF JOIN pieces AS p ON p.trace_id = s.trace_id AND p.start_ns < s.start_ns
    WHERE p.end_ns > s.start_ns
)
SELECT
    c.trace_id,  -- The trace.
    c.step,  -- Number of the step.
    n.cause,  -- The cause, in cause_kinds, as in causes.
    n.name,  -- The operator, kernel, call, annotation, Python function, thread or stream.
    TRY_CAST(sum(c.duration_ns) AS BIGINT) AS duration_ns,  -- Time of the cause and name on the path, ns.
    -- Share of the path's time in the step, percent; the rows of a step sum to 100.
    100e0 * sum(c.duration_ns) / nullif(sum(sum(c.duration_ns)) OVER (PARTITION BY c.trace_id, c.step), 0)
        AS percent,
    count(*) AS n_stretches  -- Number of path segments with this cause, uninterrupted by other causes.
FROM cut AS c
JOIN _named_causes AS n ON n.window_no = c.window_no AND n.row_no = c.row_no AND NOT n.without_profiler
GROUP BY c.trace_id, c.step, n.cause, n.name
