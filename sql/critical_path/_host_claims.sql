-- One row: an edge into a node of a host thread, in a window that the path covers.
-- part of: _claim_parts
-- How: the edges of _host_edges. Where a call waited for work of the window, its own edge claims no more than it needs
-- when it waits for nothing, and never all of the time; where it waited for work of before the window, its time is that
-- work's. Before the last call of a loop that asked until work had ended, only the time until the loop began counts.
SELECT
    h.window_no,  -- The window.
    2 AS kind,  -- See _edges.
    h.ordinal,  -- Place in the window.
    h.src_node_id,  -- Source node.
    h.dst_node_id,  -- Destination node.
    h.edge_code,  -- Type of the edge.
    -- What the edge claims of the time that passed, ns.
    CASE
        WHEN b.source_in_window THEN least(h.claim_ns, b.need_ns, greatest(h.elapsed_ns - 1, 0))
        WHEN p.source_in_window THEN greatest(h.elapsed_ns - greatest(p.asked_ns, 1), 0)
        ELSE h.claim_ns
    END AS claim_ns,
    h.attributed_event_id,  -- Event whose time it is.
    -- A wait for GPU work from outside the window.
    coalesce(
        NOT b.source_in_window AND 2 * b.remaining_ns <= h.elapsed_ns,
        NOT p.source_in_window AND 2 * p.asked_ns >= h.elapsed_ns, FALSE
    ) AS is_earlier,
    h.is_inferred,  -- A hand-off between threads that nothing but the times shows.
    h.is_inferred AS yields  -- It gives way to edges that other models add.
FROM _host_edges AS h
LEFT JOIN _bound_calls AS b ON b.window_no = h.window_no AND b.node_id = h.dst_node_id
LEFT JOIN _poll_waits AS p ON p.window_no = h.window_no AND p.node_id = h.dst_node_id AND p.has_waited
