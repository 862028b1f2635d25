-- One row: a node of the dependency graph of a window: the start or the end of an event.
-- How: every operator and every piece of GPU work of the window has an edge at its start and at its end.
-- check: unique(trace_id, window_id, node_id)
WITH ends AS (
    SELECT
        window_no, event_id * 2 AS node_id, event_id, TRUE AS is_start, start_ns AS at_ns
    FROM _clip
    WHERE is_operator OR side = 'gpu'
    UNION ALL
    SELECT window_no, event_id * 2 + 1, event_id, FALSE, start_ns + duration_ns
    FROM _clip
    WHERE is_operator OR side = 'gpu'
)
SELECT
    w.trace_id,  -- The trace.
    w.window_id,  -- The window.
    n.node_id,  -- Twice the event, plus 1 for its end.
    n.event_id,  -- The event.
    n.is_start,  -- The event's start, not its end.
    n.at_ns  -- Time of the node, ns.
FROM ends AS n
JOIN critical_path_windows AS w ON w.window_no = n.window_no
