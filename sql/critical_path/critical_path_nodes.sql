-- One row: a node of the dependency graph of a window: the start or the end of an event.
-- How: the ends of all edges, once each, with the time of their event.
-- check: unique(trace_id, window_id, node_id)
WITH touched AS (
    SELECT trace_id, window_id, src_node_id AS node_id FROM critical_path_edges
    UNION
    SELECT trace_id, window_id, dst_node_id FROM critical_path_edges
)
SELECT
    n.trace_id,  -- The trace.
    n.window_id,  -- The window.
    n.node_id,  -- Twice the event, plus 1 for its end.
    c.event_id,  -- The event.
    n.node_id % 2 = 0 AS is_start,  -- The event's start, not its end.
    CASE WHEN n.node_id % 2 = 0 THEN c.ts_ns ELSE c.end_ns END AS ts_ns  -- Time of the node, ns.
FROM touched AS n
JOIN _clip AS c ON c.trace_id = n.trace_id AND c.window_id = n.window_id AND c.event_id = n.node_id // 2
