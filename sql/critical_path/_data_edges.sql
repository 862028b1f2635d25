-- One row: an edge of a CPU thread that replaces serial edges that were dropped.
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
)
SELECT
    e.window_no,  -- The window.
    e.src_node_id,  -- Source node.
    c.dst_node_id,  -- Destination node.
    c.edge_code,  -- Type of the edge.
    c.dts_ns,  -- Time of the thread right before the destination, ns.
    c.ends_blocking_call,  -- It leads to the end of a blocking call.
    c.attributed_event_id  -- Event whose time it is.
FROM ends AS e
JOIN _cpu_edges AS c ON c.window_no = e.window_no AND c.thread_id = e.thread_id AND c.ordinal = e.ordinal
UNION ALL
SELECT window_no, call_node_id, node_id, 2, 0, FALSE, NULL
FROM calls
WHERE change = 1 AND call_change = -1 AND call_node_id <> last_node_id
