-- One row: a serial edge of a CPU thread that is dropped because no data flows along it.
-- How: from the end of a free operator to the start of the free operator that comes next.
SELECT
    after.window_no,  -- The window.
    after.thread_id,  -- The thread.
    after.ordinal,  -- Place of the edge's destination on the thread.
    before.node_id AS src_node_id,  -- Source node: the end of an operator.
    after.node_id AS dst_node_id,  -- Destination node: the start of the next.
    after.lower_node_id,  -- The node that the destination still follows; NULL where there is none.
    before.upper_place  -- Place of the node that still follows the source; NULL where there is none.
FROM _data_order AS after
JOIN _data_order AS before ON before.window_no = after.window_no AND before.node_id = after.last_node_id
LEFT JOIN _data_flows AS f
    ON f.window_no = after.window_no AND f.src_event_id = before.event_id AND f.dst_event_id = after.event_id
WHERE after.change = 1 AND before.change = -1 AND after.is_free AND before.is_free AND f.window_no IS NULL
