-- One row: an edge between neighbouring nodes of a CPU thread.
-- part of: _edge_parts
-- How: the edges of _cpu_edges, without those that data dependencies replace.
SELECT
    c.window_no,  -- The window.
    2 AS kind,  -- See _edges.
    c.thread_id * 1099511627776 + c.ordinal AS ordinal,  -- 2^40 times the thread, plus the place on it.
    c.src_node_id,  -- Source node.
    c.dst_node_id,  -- Destination node.
    c.edge_code,  -- Type of the edge.
    CASE WHEN c.edge_code = t.dependency THEN 0 ELSE c.dts_ns END AS weight_ns,  -- Weight as measured, ns.
    c.ends_blocking_call,  -- It leads to the end of a blocking call.
    c.attributed_event_id,  -- Event whose time it is.
    FALSE AS is_earlier,  -- A wait for GPU work from outside the window.
    FALSE AS is_inferred  -- A wait that no cuda_sync row shows.
FROM _cpu_edges AS c
CROSS JOIN _edge_codes AS t
LEFT JOIN _fallen_edges AS f ON f.window_no = c.window_no AND f.thread_id = c.thread_id AND f.ordinal = c.ordinal
WHERE f.window_no IS NULL
