-- One row: an edge of a CPU thread that replaces serial edges that were dropped.
-- part of: _edge_parts
-- How: operators follow whatever produced their data, and the bounds of their stretch; calls follow the call before.
-- Except between calls, an edge weighs what the serial edge into its destination weighs: host time right before an
-- operator stays with that operator.
WITH ends AS (
    SELECT window_no, thread_id, ordinal, src_event_id * 2 + 1 AS src_node_id
    FROM _data_flows
    WHERE NOT is_next
    UNION ALL
    SELECT window_no, thread_id, ordinal, lower_node_id FROM _fallen_edges WHERE lower_node_id IS NOT NULL
    UNION ALL
    SELECT window_no, thread_id, upper_place, src_node_id FROM _fallen_edges WHERE upper_place IS NOT NULL
),
calls AS (
    SELECT
        window_no, thread_id, ordinal, node_id, change, last_node_id,
        lag(node_id) OVER thread AS call_node_id,
        lag(change) OVER thread AS call_change
    FROM _data_order
    WHERE is_call
    WINDOW thread AS (PARTITION BY window_no, thread_id ORDER BY ordinal)
),
replacing AS (
    SELECT
        e.window_no, e.src_node_id, c.dst_node_id, c.edge_code, c.dts_ns, c.ends_blocking_call, c.attributed_event_id
    FROM ends AS e
    JOIN _cpu_edges AS c ON c.window_no = e.window_no AND c.thread_id = e.thread_id AND c.ordinal = e.ordinal
    UNION ALL
    SELECT c.window_no, c.call_node_id, c.node_id, t.dependency, 0, FALSE, NULL
    FROM calls AS c
    CROSS JOIN _edge_codes AS t
    WHERE c.change = 1 AND c.call_change = -1 AND c.call_node_id <> c.last_node_id
)
SELECT
    r.window_no,  -- The window.
    5 AS kind,  -- See _edges.
    -- Place in order of destination and source.
    row_number() OVER (PARTITION BY r.window_no ORDER BY r.dst_node_id, r.src_node_id) AS ordinal,
    r.src_node_id,  -- Source node.
    r.dst_node_id,  -- Destination node.
    r.edge_code,  -- Type of the edge.
    -- Time of the thread right before the destination, ns.
    CASE WHEN r.edge_code = t.dependency THEN 0 ELSE r.dts_ns END AS weight_ns,
    r.ends_blocking_call,  -- It leads to the end of a blocking call.
    r.attributed_event_id,  -- Event whose time it is.
    FALSE AS is_earlier,  -- A wait for GPU work from outside the window.
    FALSE AS is_inferred  -- A wait that no cuda_sync row shows.
FROM replacing AS r
CROSS JOIN _edge_codes AS t
