-- One row: an edge for a wait that no cuda_sync row shows.
-- part of: _edge_parts
-- How: the waits of _inferred_edges for work of the window.
SELECT
    i.window_no,  -- The window.
    6 AS kind,  -- See _edges.
    -- Place in order of destination and source.
    row_number() OVER (PARTITION BY i.window_no ORDER BY i.dst_event_id, i.src_event_id) AS ordinal,
    i.src_event_id * 2 + 1 AS src_node_id,  -- Source node.
    i.dst_event_id * 2 + CASE WHEN i.dst_is_start THEN 0 ELSE 1 END AS dst_node_id,  -- Destination node.
    -- Type of the edge.
    CASE WHEN i.dst_is_start THEN t.kernel_kernel_delay ELSE t.operator_kernel END AS edge_code,
    i.weight_ns,  -- Weight as measured, ns.
    NOT i.dst_is_start AS ends_blocking_call,  -- It leads to the end of a blocking call.
    -- Event whose time it is.
    CASE WHEN i.dst_is_start THEN i.src_event_id ELSE i.dst_event_id END AS attributed_event_id,
    FALSE AS is_earlier,  -- A wait for GPU work from outside the window.
    TRUE AS is_inferred  -- A wait that no cuda_sync row shows.
FROM _inferred_edges AS i
JOIN critical_path_windows AS w ON w.window_no = i.window_no AND NOT w.covers_window
CROSS JOIN _edge_codes AS t
WHERE i.src_in_window
