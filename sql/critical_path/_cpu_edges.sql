-- One row: an edge between neighboring nodes of a CPU thread.
-- How: the thread's nodes in stack order; entering at the top of the thread is a dependency that takes no time, every
-- other edge takes the time between its nodes (HTA 2.8.5).
-- Between calls under the runtime lock, the lock edges are used instead, except from the end of one call to the start
-- of the next.
SELECT
    n.thread_key // 1048576 AS window_no,  -- The window; thread_key is 2^20 times it, plus the thread (_stack_events).
    n.thread_key % 1048576 AS thread_id,  -- The thread.
    n.ordinal,  -- Place on the thread.
    n.last_node_id AS src_node_id,  -- Source node.
    n.event_id * 2 + CASE WHEN n.change = 1 THEN 0 ELSE 1 END AS dst_node_id,  -- Destination node.
    -- Type of the edge, in edge_types.
    CASE WHEN n.change = 1 AND n.n_open = 1 THEN t.dependency ELSE t.operator_kernel END AS edge_code,
    n.since_last_ns AS dts_ns,  -- From source to destination, ns.
    n.change = -1 AND n.is_blocking AS ends_blocking_call,  -- It leads to the end of a blocking call.
    CASE
        WHEN n.change = 1 AND n.n_open = 1 THEN NULL
        WHEN n.last_node_id % 2 = 0 THEN n.last_node_id // 2
        WHEN n.change = -1 THEN n.event_id
        -- From the end of one operator to the start of the next: the operator around both (HTA: around the one that
        -- ended).
        ELSE n.around_event_id
    END AS attributed_event_id  -- Event that the edge's time belongs to (HTA 2.8.6).
FROM _stack_order AS n
CROSS JOIN _edge_codes AS t
WHERE
    n.last_node_id IS NOT NULL
    AND NOT (n.both_lock AND NOT (n.last_node_id % 2 = 1 AND n.change = 1))
