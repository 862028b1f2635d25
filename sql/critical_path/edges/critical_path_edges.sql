-- One row: an edge of the dependency graph of a window.
-- How: join _edges to the names of its trace, window and edge type.
-- check: unique(trace_id, window_id, edge_id)
SELECT
    w.trace_id,  -- The trace.
    w.window_id,  -- The window.
    e.edge_id,  -- Number of the edge within the window; ascending in the order in which HTA inserts edges.
    e.src_node_id,  -- Source node: twice the event, plus 1 for its end.
    e.dst_node_id,  -- Destination node, numbered like the source node.
    e.src_node_id // 2 AS src_event_id,  -- Event of the source node.
    e.src_node_id % 2 = 0 AS src_is_start,  -- The source is the event's start.
    e.dst_node_id // 2 AS dst_event_id,  -- Event of the destination node.
    e.dst_node_id % 2 = 0 AS dst_is_start,  -- The destination is the event's start.
    t.edge_type,  -- Type of the edge, one of edge_types.
    e.weight_ns,  -- Weight as measured, ns; negative if the destination precedes the source.
    e.path_weight_ns,  -- Weight as used on the path, ns.
    e.attributed_event_id,  -- Event that the edge's time belongs to; NULL for edges without time and for launch delays.
    e.waits_for_earlier_work,  -- The edge is mostly a wait for GPU work from outside the window.
    e.is_inferred,  -- A wait that no cuda_sync row records, inferred from calls and timing.
    -- Event displayed as the owner of the edge's time: in a host gap the enclosing annotation, else the module's or
    -- user's own Python function; else attributed_event_id.
    coalesce(o.owner_event_id, e.attributed_event_id) AS owner_event_id,
    b.bound_by  -- Bound of the edge if it is on a path.
FROM _edges AS e
JOIN critical_path_windows AS w ON w.window_no = e.window_no
JOIN edge_types AS t ON t.edge_code = e.edge_code
JOIN _edge_bounds AS b ON b.window_no = e.window_no AND b.edge_id = e.edge_id
LEFT JOIN _gap_owners AS o ON o.window_no = e.window_no AND o.event_id = e.attributed_event_id
