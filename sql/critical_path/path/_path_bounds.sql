-- One row: an edge of the longest path of a window, with its bound. The table has many rows, so events and types are
-- numbers.
SELECT
    l.window_no,  -- The window.
    l.seq,  -- Position on the path, from 1.
    l.edge_id,  -- The edge.
    e.src_node_id,  -- Source node.
    e.dst_node_id,  -- Destination node.
    e.edge_code,  -- Type of the edge.
    e.weight_ns,  -- Weight as measured, ns.
    e.path_weight_ns,  -- Weight as used on the path, ns.
    -- The edge's time in the summary, ns.
    CASE WHEN p.summary_of_measured THEN e.weight_ns ELSE e.path_weight_ns END AS duration_ns,
    e.attributed_event_id,  -- Event that the edge's time belongs to.
    e.waits_for_earlier_work,  -- The edge is mostly a wait for GPU work from outside the window.
    e.is_inferred,  -- A wait that no cuda_sync row records.
    b.bound_by  -- Bound of the edge.
FROM _longest_path AS l
JOIN _asked_windows AS w ON w.window_no = l.window_no
JOIN _profiles AS p ON p.trace_profile_id = w.trace_profile_id
JOIN _edges AS e ON e.window_no = l.window_no AND e.edge_id = l.edge_id
JOIN _edge_bounds AS b ON b.window_no = l.window_no AND b.edge_id = l.edge_id
