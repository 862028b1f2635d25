-- One row: a node of the dependency graph of a window: the start or the end of an event.
-- How: the start and end of every operator and GPU activity of the window. In a window with a covering path, also every
-- annotation or Python function that begins or ends outside operators.
-- check: unique(trace_id, window_id, node_id)
WITH events_of_graph AS (
    SELECT
        c.window_no, c.event_id, c.start_ns, c.duration_ns, CASE WHEN c.side = 'gpu' THEN 'gpu' ELSE 'cpu' END AS side
    FROM _clip AS c
    LEFT JOIN _left_out AS o ON o.window_no = c.window_no AND o.event_id = c.event_id
    WHERE (c.is_operator OR c.side = 'gpu') AND o.event_id IS NULL
),
ends AS (
    SELECT window_no, event_id * 2 AS node_id, event_id, TRUE AS is_start, start_ns AS at_ns, side FROM events_of_graph
    UNION ALL
    SELECT window_no, event_id * 2 + 1, event_id, FALSE, start_ns + duration_ns, side FROM events_of_graph
    UNION ALL
    SELECT g.window_no, g.node_id, g.node_id // 2, g.node_id % 2 = 0, w.start_ns + g.at_ns, 'frame'
    FROM _host_nodes AS g
    JOIN _asked_windows AS w ON w.window_no = g.window_no
    WHERE g.is_gap
)
SELECT
    w.trace_id,  -- The trace.
    w.window_id,  -- The window.
    n.node_id,  -- Twice the event, plus 1 for its end.
    n.event_id,  -- The event.
    n.is_start,  -- The node is the event's start, not its end.
    n.at_ns,  -- Time of the node, ns.
    n.side  -- gpu: GPU work; cpu: an operator or call; frame: an annotation or Python function outside operators.
FROM ends AS n
JOIN critical_path_windows AS w ON w.window_no = n.window_no
