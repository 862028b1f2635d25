-- One row: an edge between neighboring nodes of a CPU thread.
-- How: the thread's nodes in stack order; entering at the top of the thread is a dependency that takes no time, every
-- other edge takes the time between its nodes (HTA 2.8.5).
-- Between calls under the runtime lock, the lock edges are used instead, except from the end of one call to the start
-- of the next.
WITH nodes AS (
    SELECT
        *,
        sum(change) OVER (thread ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS open_after,
        lag(event_id) OVER thread AS src_event_id,
        lag(change) OVER thread AS src_change,
        lag(at_ns) OVER thread AS src_ns,
        lag(is_lock) OVER thread AS src_is_lock,
        lag(parent_event_id) OVER thread AS src_parent_event_id
    FROM _stack_order
    WHERE is_operator
    WINDOW thread AS (PARTITION BY thread_key ORDER BY ordinal)
)
SELECT
    n.thread_key // 1048576 AS window_no,  -- The window; thread_key is 2^20 times it, plus the thread (_stack_order).
    n.thread_key % 1048576 AS thread_id,  -- The thread.
    n.ordinal,  -- Place on the thread.
    n.src_event_id * 2 + CASE WHEN n.src_change = 1 THEN 0 ELSE 1 END AS src_node_id,  -- Source node.
    n.event_id * 2 + CASE WHEN n.change = 1 THEN 0 ELSE 1 END AS dst_node_id,  -- Destination node.
    -- Type of the edge, in edge_types.
    CASE WHEN n.change = 1 AND n.open_after = 1 THEN t.dependency ELSE t.operator_kernel END AS edge_code,
    n.at_ns - n.src_ns AS dts_ns,  -- From source to destination, ns.
    n.change = -1 AND n.is_blocking AS ends_blocking_call,  -- It leads to the end of a blocking call.
    CASE
        WHEN n.change = 1 AND n.open_after = 1 THEN NULL
        WHEN n.src_change = 1 THEN n.src_event_id
        WHEN n.change = -1 THEN n.event_id
        -- From the end of one operator to the start of the next: the operator around both (HTA: around the one that
        -- ended).
        WHEN n.exit_pops_top THEN n.src_parent_event_id
        ELSE n.parent_event_id
    END AS attributed_event_id  -- Event that the edge's time belongs to (HTA 2.8.6).
FROM nodes AS n
CROSS JOIN _edge_codes AS t
WHERE
    n.src_event_id IS NOT NULL
    AND NOT (n.src_is_lock AND n.is_lock AND NOT (n.src_change = -1 AND n.change = 1))
