-- One row: an edge of the dependency graph of a window.
-- How: the union of lock, call-stack, kernel, synchronisation and launch edges, numbered in the order in which HTA inserts them.
-- check: unique(trace_id, window_id, edge_id)
WITH explained AS (
    -- A blocking call whose wait ends with GPU work that was still running when the call began.
    SELECT s.trace_id, s.window_id, s.dst_event_id
    FROM _sync_edges AS s
    JOIN _clip AS c ON c.trace_id = s.trace_id AND c.window_id = s.window_id AND c.event_id = s.dst_event_id AND c.side = 'cpu'
    WHERE NOT s.dst_is_start AND s.src_ns > c.ts_ns
    GROUP BY s.trace_id, s.window_id, s.dst_event_id
),
edges AS (
    SELECT
        trace_id, window_id, 1 AS stage, place, src_event_id, src_is_start, dst_event_id, FALSE AS dst_is_start, edge_type,
        CASE WHEN edge_type = 'DEPENDENCY' THEN 0 ELSE dst_ns - src_ns END AS weight_ns, FALSE AS is_free,
        CASE WHEN edge_type = 'DEPENDENCY' THEN NULL ELSE dst_event_id END AS attributed_event_id
    FROM _lock_edges
    UNION ALL
    SELECT
        c.trace_id, c.window_id, 2, c.thread_id * 1099511627776 + c.place, c.src_event_id, c.src_is_start, c.dst_event_id, c.dst_is_start, c.edge_type,
        CASE WHEN c.edge_type = 'DEPENDENCY' OR c.ends_blocking_call AND p.blocking_is_always_free THEN 0 ELSE c.dst_ns - c.src_ns END,
        c.ends_blocking_call AND x.dst_event_id IS NOT NULL,
        c.attributed_event_id
    FROM _cpu_edges AS c
    JOIN critical_path_windows AS w ON w.trace_id = c.trace_id AND w.window_id = c.window_id
    JOIN _profiles AS p ON p.trace_id = w.trace_id AND p.profile = w.profile
    LEFT JOIN explained AS x ON x.trace_id = c.trace_id AND x.window_id = c.window_id AND x.dst_event_id = c.dst_event_id
    UNION ALL
    SELECT trace_id, window_id, 3, place * 4, event_id, TRUE, event_id, FALSE, 'OPERATOR_KERNEL', end_ns - ts_ns, FALSE, event_id
    FROM _kernel_nodes
    UNION ALL
    SELECT s.trace_id, s.window_id, 3, k.place * 4 + 1, s.src_event_id, FALSE, s.dst_event_id, TRUE, 'SYNC_DEPENDENCY', 0, FALSE, NULL
    FROM _sync_edges AS s
    JOIN _kernel_nodes AS k ON k.trace_id = s.trace_id AND k.window_id = s.window_id AND k.event_id = s.dst_event_id
    WHERE s.dst_is_start AND NOT (s.src_event_id = coalesce(k.last_event_id, -1) AND k.may_wait_for_last AND NOT k.waited_for_launch)
    UNION ALL
    SELECT trace_id, window_id, 3, place * 4 + 2, launch_event_id, TRUE, event_id, TRUE, 'KERNEL_LAUNCH_DELAY', ts_ns - launch_ts_ns, FALSE, NULL
    FROM _kernel_nodes
    WHERE waited_for_launch
    UNION ALL
    SELECT trace_id, window_id, 3, place * 4 + 2, last_event_id, FALSE, event_id, TRUE, 'KERNEL_KERNEL_DELAY', ts_ns - last_end_ns, FALSE, last_event_id
    FROM _kernel_nodes
    WHERE may_wait_for_last AND NOT waited_for_launch
    UNION ALL
    SELECT trace_id, window_id, 3, place * 4 + 3, launch_event_id, TRUE, event_id, TRUE, 'KERNEL_LAUNCH_DELAY', 0, FALSE, NULL
    FROM _kernel_nodes
    WHERE zero_weight_launch AND launch_in_window AND NOT waited_for_launch
    UNION ALL
    SELECT s.trace_id, s.window_id, 4, s.src_event_id, s.src_event_id, FALSE, s.dst_event_id, FALSE, 'SYNC_DEPENDENCY', 0, FALSE, NULL
    FROM _sync_edges AS s
    WHERE NOT s.dst_is_start
)
SELECT
    e.trace_id,  -- The trace.
    e.window_id,  -- The window.
    row_number() OVER (PARTITION BY e.trace_id, e.window_id ORDER BY e.stage, e.place, e.src_event_id, e.dst_event_id) AS edge_id,  -- Number of the edge within the window, from 1.
    e.src_event_id * 2 + CASE WHEN e.src_is_start THEN 0 ELSE 1 END AS src_node_id,  -- Source node: twice the event, plus 1 for its end.
    e.dst_event_id * 2 + CASE WHEN e.dst_is_start THEN 0 ELSE 1 END AS dst_node_id,  -- Destination node, likewise.
    e.src_event_id,  -- Event of the source node.
    e.src_is_start,  -- The source is the event's start.
    e.dst_event_id,  -- Event of the destination node.
    e.dst_is_start,  -- The destination is the event's start.
    e.edge_type,  -- OPERATOR_KERNEL, DEPENDENCY, KERNEL_LAUNCH_DELAY, KERNEL_KERNEL_DELAY or SYNC_DEPENDENCY.
    e.weight_ns,  -- Weight as measured, ns; negative where the trace goes backwards.
    CASE WHEN e.is_free OR e.weight_ns <= p.zero_from_ns THEN 0 ELSE e.weight_ns END AS path_weight_ns,  -- Weight as used on the path, ns.
    e.attributed_event_id  -- Event whose time the edge is; NULL for edges without time and for launch delays.
FROM edges AS e
JOIN critical_path_windows AS w ON w.trace_id = e.trace_id AND w.window_id = e.window_id
JOIN _profiles AS p ON p.trace_id = w.trace_id AND p.profile = w.profile
