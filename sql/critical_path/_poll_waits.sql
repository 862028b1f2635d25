-- One row: a loop of calls that asked until GPU work had ended (_poll_loops), in a window that the path covers.
-- How: by its last call, which goes on when the work has ended. Those before it are no part of the graph (_left_out).
-- Materialized, as in _call_waits: DuckDB may otherwise join each loop with each window of its trace first.
WITH calls AS MATERIALIZED (
    SELECT c.window_no, w.trace_profile_id, c.event_id, c.start_ns, c.duration_ns
    FROM _clip AS c
    JOIN critical_path_windows AS w ON w.window_no = c.window_no AND w.covers_window
    WHERE c.is_operator
),
asking AS MATERIALIZED (
    SELECT
        f.window_no, f.start_ns AS first_ns, p.last_event_id, p.source_event_id, p.source_end_ns, p.has_waited
    FROM _poll_loops AS p
    JOIN calls AS f ON f.trace_profile_id = p.trace_profile_id AND f.event_id = p.event_id
)
SELECT
    c.window_no,  -- The window.
    c.event_id,  -- The last call.
    c.event_id * 2 AS node_id,  -- Its start.
    c.start_ns,  -- The time of that, ns.
    c.start_ns - min(p.first_ns) AS asked_ns,  -- Time since the first call of the loop in the window, ns.
    -- The part of that in which the loop did not ask but did something else, 0 to 1, going by the last call's length.
    greatest(
        1.0 - (count(*) - 1) * c.duration_ns / greatest(c.start_ns - min(p.first_ns), 1), 0.0
    ) AS pause_share,
    p.source_event_id,  -- GPU work that the loop waited for.
    k.start_ns AS source_start_ns,  -- Its start, ns; NULL outside the window.
    p.source_end_ns,  -- Its end, ns.
    k.event_id IS NOT NULL AS source_in_window,  -- It belongs to the window.
    p.has_waited  -- FALSE: the loop's first call found it done.
FROM asking AS p
JOIN calls AS c ON c.window_no = p.window_no AND c.event_id = p.last_event_id
LEFT JOIN _kernel_nodes AS k ON k.window_no = p.window_no AND k.event_id = p.source_event_id
LEFT JOIN _left_out AS o ON o.window_no = c.window_no AND o.event_id = c.event_id
WHERE
    o.event_id IS NULL AND (k.start_ns IS NULL OR k.start_ns <= c.start_ns)
    AND (p.has_waited OR p.source_end_ns <= c.start_ns)
GROUP BY
    c.window_no, c.event_id, c.start_ns, c.duration_ns, p.source_event_id, k.start_ns, p.source_end_ns, k.event_id,
    p.has_waited
