-- One row: an event that has time on the critical path of a window.
-- How: the path's edges, summed by the event that their time belongs to (HTA 2.8.6). The sum precedes the join with
-- names, because an event has many edges and names are long.
WITH summed AS (
    SELECT window_no, attributed_event_id, sum(duration_ns) AS duration_ns
    FROM _path_bounds
    WHERE attributed_event_id IS NOT NULL
    GROUP BY window_no, attributed_event_id
)
SELECT
    w.trace_id,  -- The trace.
    w.window_id,  -- The window.
    s.attributed_event_id,  -- The event.
    e.name,  -- Its name.
    e.cat,  -- Its category.
    s.duration_ns  -- Time of the event on the path, ns.
FROM summed AS s
JOIN critical_path_windows AS w ON w.window_no = s.window_no
LEFT JOIN events AS e ON e.trace_id = w.trace_id AND e.event_id = s.attributed_event_id
