-- One row: an interval in which a device ran nothing, with its owner. Models that divide idle time read this table.
-- How: the critical path of the whole trace determines the owner; a new interval begins where the owner changes. The
-- path covers the time from its first event to its last. Before that time, the owner is start; after it, end. In a
-- trace without a path, it is unknown.
-- check: unique(trace_id, device, start_ns)
WITH windows AS (
    SELECT w.trace_id, w.window_no, w.path_start_ns, w.path_end_ns
    FROM critical_path_windows AS w
    WHERE w.window_id = 'full' AND w.covers_window
),
pathless AS (
    SELECT trace_id FROM _idle_gaps
    EXCEPT
    SELECT w.trace_id FROM windows AS w
    JOIN _cause_pieces AS p ON p.window_no = w.window_no
),
devices AS (
    SELECT DISTINCT trace_id, device FROM _idle_gaps
),
-- A segment of the path has its number at its start, and the path's end has 0. The same applies to gaps.
marks AS (
    SELECT g.trace_id, g.device, g.start_ns AS at_ns, 1 AS turn, g.gap_no, CAST(NULL AS BIGINT) AS piece_no
    FROM _idle_gaps AS g
    UNION ALL
    SELECT g.trace_id, g.device, g.end_ns, 0, 0, NULL FROM _idle_gaps AS g
    UNION ALL
    SELECT w.trace_id, d.device, w.path_start_ns + p.at_ns, 1, NULL, p.piece_no
    FROM _cause_pieces AS p
    JOIN windows AS w ON w.window_no = p.window_no
    JOIN devices AS d ON d.trace_id = w.trace_id
    UNION ALL
    SELECT w.trace_id, d.device, w.path_end_ns, 1, NULL, 0
    FROM windows AS w
    JOIN devices AS d ON d.trace_id = w.trace_id
),
-- The gap and the segment at a mark are the n-th of their kind, where n is the number begun so far.
numbered AS (
    SELECT
        trace_id, device, at_ns AS start_ns, lead(at_ns) OVER in_time AS end_ns, gap_no, piece_no,
        count(gap_no) OVER (in_time ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS nth_gap,
        count(piece_no) OVER (in_time ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS nth_piece
    FROM marks
    WINDOW in_time AS (PARTITION BY trace_id, device ORDER BY at_ns, turn)
),
swept AS (
    SELECT n.trace_id, n.device, n.start_ns, n.end_ns, g.gap_no, p.piece_no
    FROM numbered AS n
    JOIN numbered AS g ON g.trace_id = n.trace_id AND g.device = n.device AND g.nth_gap = n.nth_gap
    LEFT JOIN numbered AS p
        ON p.trace_id = n.trace_id AND p.device = n.device AND p.nth_piece = n.nth_piece AND p.piece_no IS NOT NULL
    WHERE g.gap_no IS NOT NULL
)
SELECT
    s.trace_id,  -- The trace.
    s.device,  -- The device.
    s.start_ns,  -- Start, ns.
    s.end_ns,  -- End, ns.
    s.end_ns - s.start_ns AS duration_ns,  -- Duration, ns.
    -- What the GPU waits for in the interval, in cause_kinds, as in causes.
    CASE
        WHEN n.cause IS NOT NULL THEN n.cause
        WHEN x.trace_id IS NOT NULL THEN 'unknown'
        WHEN s.piece_no = 0 THEN 'end'
        ELSE 'start'
    END AS cause,
    coalesce(n.name, '') AS name,  -- Name of the owner, as in causes; empty outside of the path.
    p.event_id,  -- Event of the path that shows the owner; NULL outside of the path.
    -- True if the owner follows from a wait that no event records; NULL outside of the path.
    p.inferred,
    g.gap_no,  -- Number of the gap on its device, from 1.
    g.is_inner  -- True between two GPU activities (the gap is in idle_gaps), false before the first or after the last.
FROM swept AS s
JOIN _idle_gaps AS g ON g.trace_id = s.trace_id AND g.device = s.device AND g.gap_no = s.gap_no
LEFT JOIN pathless AS x ON x.trace_id = s.trace_id
LEFT JOIN windows AS w ON w.trace_id = s.trace_id
LEFT JOIN _cause_pieces AS p ON p.window_no = w.window_no AND p.piece_no = s.piece_no
LEFT JOIN _named_causes AS n ON n.window_no = p.window_no AND n.row_no = p.row_no AND NOT n.without_profiler
WHERE s.gap_no > 0 AND s.end_ns > s.start_ns
