-- One row: the name of a kernel or operator that was on the critical path of at least one window of a capture.
-- How: the windows are the profiler steps of every rank, or the whole trace if it has no steps. Windows without a path
-- do not count. Traces that the capture excludes (a second trace of a rank, or a trace of another job) do not count
-- either.
-- scope: lake
WITH stepped AS (
    SELECT DISTINCT trace_id FROM critical_path_windows WHERE annotation <> ''
),
lengths AS (
    SELECT trace_id, window_id, sum(duration_ns) AS duration_ns FROM critical_path_summary GROUP BY trace_id, window_id
),
windows AS (
    SELECT t.capture_id, w.trace_id, w.window_id, l.duration_ns
    FROM critical_path_windows AS w
    JOIN traces AS t ON t.trace_id = w.trace_id AND t.capture_id IS NOT NULL
    JOIN lengths AS l ON l.trace_id = w.trace_id AND l.window_id = w.window_id
    LEFT JOIN capture_ranks AS r ON r.trace_id = t.trace_id AND r.capture_id = t.capture_id
    LEFT JOIN stepped AS s ON s.trace_id = w.trace_id
    WHERE (w.annotation <> '' OR s.trace_id IS NULL) AND coalesce(r.left_out_reason, 'no_rank') = 'no_rank'
),
per_capture AS (
    SELECT capture_id, count(*) AS n_windows, count(DISTINCT trace_id) AS n_ranks, sum(duration_ns) AS duration_ns
    FROM windows
    GROUP BY capture_id
),
named AS (
    SELECT
        w.capture_id, p.name, p.cat, count(*) AS n_windows, count(DISTINCT w.trace_id) AS n_ranks,
        sum(p.n_events) AS n_events, sum(p.duration_ns) AS duration_ns
    FROM critical_path_by_name AS p
    JOIN windows AS w ON w.trace_id = p.trace_id AND w.window_id = p.window_id
    GROUP BY w.capture_id, p.name, p.cat
)
SELECT
    n.capture_id,  -- The capture, as in captures.
    n.name,  -- Name of the kernel or operator.
    n.cat,  -- Category of the kernel or operator.
    n.n_windows AS n_windows_on_path,  -- Windows (steps of ranks) whose path contains the name.
    c.n_windows,  -- Windows of the capture.
    -- Share of windows in which the name was critical, percent.
    100e0 * n.n_windows / c.n_windows AS percent_of_windows,
    n.n_ranks AS n_ranks_on_path,  -- Ranks whose path contains the name in at least one window.
    c.n_ranks,  -- Ranks of the capture.
    CAST(n.n_events AS BIGINT) AS n_events,  -- Events of that name on the paths.
    TRY_CAST(n.duration_ns AS BIGINT) AS duration_ns,  -- Time of these events on the paths of all windows, ns.
    -- duration_ns in percent of the summed lengths of the paths; NULL where that sum is 0.
    100e0 * n.duration_ns / nullif(c.duration_ns, 0) AS percent_of_path
FROM named AS n
JOIN per_capture AS c ON c.capture_id = n.capture_id
