-- One row: a window of a trace: an interval whose critical path is requested.
-- How: the windows of _asked_windows. The whole trace ends with its last GPU work or the last event of a thread that
-- launches GPU work. If the path covers the window, it runs from the first node to the last. The path of a step ends
-- with the GPU work that the step launched.
-- check: unique(trace_id, window_id)
WITH at_ends AS (
    SELECT c.window_no, c.start_ns AS start_ns, c.start_ns + c.duration_ns AS end_ns
    FROM _clip AS c
    LEFT JOIN _left_out AS o ON o.window_no = c.window_no AND o.event_id = c.event_id
    WHERE (c.is_operator OR c.side = 'gpu') AND o.event_id IS NULL
    UNION ALL
    SELECT g.window_no, w.start_ns + g.at_ns, w.start_ns + g.at_ns
    FROM _host_nodes AS g
    JOIN _asked_windows AS w ON w.window_no = g.window_no
    WHERE g.is_gap
),
spans AS (
    SELECT window_no, min(start_ns) AS start_ns, max(end_ns) AS end_ns
    FROM at_ends
    GROUP BY window_no
)
SELECT
    w.trace_id,  -- The trace.
    w.window_id,  -- Name of the window; full is the whole trace.
    w.profile,  -- hta or default.
    w.annotation,  -- Text that the annotation's name contains; empty for the whole trace.
    w.first_instance,  -- First instance of the annotation, from 0.
    w.last_instance,  -- Last instance, inclusive.
    -- Start of the window, ns.
    CASE
        WHEN w.covers_window AND w.annotation = '' THEN coalesce(s.start_ns, w.start_ns) ELSE w.start_ns
    END AS start_ns,
    -- End of the window, ns.
    CASE
        WHEN w.covers_window AND w.annotation = '' THEN coalesce(s.end_ns, w.end_ns) ELSE w.end_ns
    END AS end_ns,
    -- Start of the path, ns.
    CASE WHEN w.covers_window THEN coalesce(s.start_ns, w.start_ns) ELSE w.start_ns END AS path_start_ns,
    -- End of the path, ns; later than the window's end if GPU work runs past it.
    CASE WHEN w.covers_window THEN coalesce(s.end_ns, w.end_ns) ELSE w.end_ns END AS path_end_ns,
    w.window_no,  -- Number of the window within this computation; private models join on it.
    w.trace_profile_id,  -- Number of the trace and profile within this computation.
    w.covers_window  -- The path covers the whole window: every node has a binding edge.
FROM _asked_windows AS w
LEFT JOIN spans AS s ON s.window_no = w.window_no
