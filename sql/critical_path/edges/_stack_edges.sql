-- One row: an edge between the nodes of CPU threads, in a window that the path does not cover.
-- part of: _edge_parts
-- How: edges between neighbors of a call stack, between calls under the runtime lock and, where operators follow their
-- data, along the data flow.
WITH locks AS (
    SELECT c.window_no, c.event_id, c.start_ns, c.duration_ns, p.keep_overlapped_call_time
    FROM _clip AS c
    JOIN _asked_windows AS w ON w.window_no = c.window_no
    JOIN _profiles AS p ON p.trace_profile_id = w.trace_profile_id
    WHERE c.is_operator AND c.is_lock AND NOT p.covers_window
),
lock_ends AS (
    SELECT window_no, event_id, 1 AS change, start_ns AS at_ns FROM locks
    UNION ALL
    SELECT window_no, event_id, -1, start_ns + duration_ns FROM locks
),
lock_marks AS (
    SELECT
        *,
        row_number() OVER by_time AS ordinal,
        lag(change) OVER by_time AS change_before,
        lag(event_id) OVER by_time AS event_before,
        sum(CASE WHEN change = -1 THEN 1 ELSE 0 END) OVER (by_time ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)
        - CASE WHEN change = -1 THEN 1 ELSE 0 END AS ends_before
    FROM lock_ends
    WINDOW by_time AS (PARTITION BY window_no ORDER BY at_ns, event_id, change DESC)
),
closed AS (
    SELECT s.window_no, s.ordinal, s.event_id AS src_event_id, e.event_id AS dst_event_id, e.at_ns - s.at_ns AS dts_ns
    FROM lock_marks AS s
    JOIN lock_marks AS e ON e.window_no = s.window_no AND e.ends_before = s.ends_before
    WHERE s.change = 1 AND e.change = -1
),
-- One row: an edge between calls that take the CUDA runtime lock, over all threads.
-- How: starts are grouped by the number of ends before them. Each start has an edge to the next end, and each end has
-- an edge to an end that directly follows it (HTA 2.8.4).
lock_edges AS (
    SELECT
        c.window_no,  -- The window.
        1 AS kind,  -- See _edges.
        c.ordinal * 4 AS ordinal,  -- Position in time order, four numbers apart.
        c.src_event_id * 2 AS src_node_id,  -- Source node.
        c.dst_event_id * 2 + 1 AS dst_node_id,  -- Destination node: always an end.
        -- Type of the edge, in edge_types.
        CASE
            WHEN c.src_event_id = c.dst_event_id THEN edge_code('OPERATOR_KERNEL') ELSE edge_code('DEPENDENCY')
        END AS edge_code,
        -- From source to destination, ns; 0 for dependencies.
        CASE WHEN c.src_event_id = c.dst_event_id THEN c.dts_ns ELSE 0 END AS weight_ns,
        FALSE AS ends_blocking_call,  -- The edge leads to the end of a blocking call, whose time does not count.
        -- Event that the edge's time belongs to.
        CASE WHEN c.src_event_id = c.dst_event_id THEN c.dst_event_id END AS attributed_event_id,
        FALSE AS is_earlier,  -- A wait for GPU work from outside the window.
        FALSE AS is_inferred  -- A wait that no cuda_sync row records.
    FROM closed AS c
    UNION ALL
    SELECT
        o.window_no, 1, o.ordinal * 4 + 1, o.event_before * 2 + 1, o.event_id * 2 + 1, edge_code('DEPENDENCY'), 0,
        FALSE, NULL, FALSE, FALSE
    FROM lock_marks AS o
    WHERE o.change = -1 AND o.change_before = -1
    UNION ALL
    SELECT
        c.window_no, 1, c.ordinal * 4 + 2, c.src_event_id * 2, c.src_event_id * 2 + 1, edge_code('OPERATOR_KERNEL'),
        l.duration_ns, FALSE, c.src_event_id, FALSE, FALSE
    FROM closed AS c
    JOIN locks AS l ON l.window_no = c.window_no AND l.event_id = c.src_event_id
    WHERE c.src_event_id <> c.dst_event_id AND l.keep_overlapped_call_time
),
-- One row: an edge between neighboring nodes of a CPU thread.
-- How: the thread's nodes in stack order. An entry at the top of the thread is a dependency that takes no time. Every
-- other edge takes the time between its nodes (HTA 2.8.5). Between calls under the runtime lock, the lock edges apply
-- instead, except from the end of one call to the start of the next.
cpu_edges AS (
    SELECT
        -- The window; thread_key is 2^20 times it, plus the thread (_stack_events).
        n.thread_key // 1048576 AS window_no,
        n.thread_key % 1048576 AS thread_id,  -- The thread.
        n.ordinal,  -- Position on the thread.
        n.last_node_id AS src_node_id,  -- Source node.
        n.event_id * 2 + CASE WHEN n.change = 1 THEN 0 ELSE 1 END AS dst_node_id,  -- Destination node.
        -- Type of the edge, in edge_types.
        CASE
            WHEN n.change = 1 AND n.n_open = 1 THEN edge_code('DEPENDENCY') ELSE edge_code('OPERATOR_KERNEL')
        END AS edge_code,
        n.since_last_ns AS dts_ns,  -- From source to destination, ns.
        n.change = -1 AND n.is_blocking AS ends_blocking_call,  -- The edge leads to the end of a blocking call.
        CASE
            WHEN n.change = 1 AND n.n_open = 1 THEN NULL
            WHEN n.last_node_id % 2 = 0 THEN n.last_node_id // 2
            WHEN n.change = -1 THEN n.event_id
            -- From the end of one operator to the start of the next: the operator that encloses both (HTA: the operator
            -- that encloses the ended operator).
            ELSE n.around_event_id
        END AS attributed_event_id  -- Event that the edge's time belongs to (HTA 2.8.6).
    FROM _stack_order AS n
    WHERE
        n.last_node_id IS NOT NULL
        AND NOT (n.both_lock AND NOT (n.last_node_id % 2 = 1 AND n.change = 1))
),
windows AS (
    SELECT w.window_no, w.trace_id
    FROM _asked_windows AS w
    JOIN _profiles AS p ON p.trace_profile_id = w.trace_profile_id
    WHERE p.data_dependencies
),
returned AS (
    SELECT trace_id, node_id, split_part(op_schema, ') -> ', 2) AS result
    FROM execution_nodes
),
-- One row: an operator or call of a window with data dependencies, and its node in the execution trace.
-- How: operators joined to their node. An operator that returns a value to the host (`aten::item`: Scalar) passes on
-- data that no tensor shows.
data_operators AS (
    SELECT
        w.window_no,  -- The window.
        c.event_id,  -- The operator or call.
        o.node_id AS execution_node_id,  -- Its node in the execution trace; NULL if it was not joined.
        e.cat <> 'cpu_op' AS is_call,  -- A call of the runtime or driver; calls keep their order.
        e.cat = 'cpu_op' AND (
            o.node_id IS NULL
            OR coalesce(r.result, '') NOT IN ('', '()') AND NOT contains(r.result, 'Tensor') AND NOT contains(
                r.result, '__torch__'
            )
        ) AS hides_data  -- The execution trace does not show the operator's dependencies, so it stays serial.
    FROM windows AS w
    JOIN _clip AS c ON c.window_no = w.window_no AND c.is_operator AND c.side = 'cpu'
    JOIN events AS e ON e.trace_id = w.trace_id AND e.event_id = c.event_id
    LEFT JOIN operator_nodes AS o ON o.trace_id = w.trace_id AND o.event_id = c.event_id
    LEFT JOIN returned AS r ON r.trace_id = o.trace_id AND r.node_id = o.node_id
),
nodes AS (
    SELECT
        s.thread_key, s.ordinal, s.event_id, s.change, s.parent_event_id,
        s.event_id * 2 + CASE WHEN s.change = 1 THEN 0 ELSE 1 END AS node_id,
        o.execution_node_id, o.is_call, o.hides_data,
        lag(s.event_id * 2 + CASE WHEN s.change = 1 THEN 0 ELSE 1 END) OVER thread AS last_node_id,
        sum(s.change) OVER (thread ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS open_after,
        sum(CASE WHEN s.change = 1 AND o.hides_data THEN 1 ELSE 0 END) OVER (
            thread ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        ) AS n_hiding
    FROM data_operators AS o
    JOIN _stack_order AS s ON s.thread_key // 1048576 = o.window_no AND s.event_id = o.event_id
    WINDOW thread AS (PARTITION BY s.thread_key ORDER BY s.ordinal)
),
judged AS (
    SELECT
        *,
        NOT is_call AND NOT hides_data
        AND max(n_hiding) OVER (PARTITION BY thread_key, event_id)
        = min(n_hiding) OVER (PARTITION BY thread_key, event_id) AS is_free
    FROM nodes
),
-- Each node belongs to two levels: the level of its neighbors, and the level of its event's content, which it bounds.
levels AS (
    SELECT
        *, open_after - CASE WHEN change = 1 THEN 1 ELSE 0 END AS level, FALSE AS is_around,
        NOT is_free AND change = -1 AS is_lower, NOT is_free AND change = 1 AS is_upper
    FROM judged
    UNION ALL
    SELECT *, open_after + CASE WHEN change = 1 THEN 0 ELSE 1 END, TRUE, change = 1, change = -1
    FROM judged
),
bounded AS (
    SELECT
        *,
        last_value(CASE WHEN is_lower THEN node_id END IGNORE NULLS) OVER (
            PARTITION BY thread_key, level ORDER BY ordinal ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS lower_node_id,
        last_value(CASE WHEN is_upper THEN ordinal END IGNORE NULLS) OVER (
            PARTITION BY thread_key, level ORDER BY ordinal DESC ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS upper_place
    FROM levels
),
-- One row: a node of a CPU thread in a window with data dependencies, with the nodes that still bound it in time.
-- How: an operator is free if neither it nor an operator inside it hides data. An operator that is not free keeps its
-- position among its neighbors.
-- Free neighbors have two bounds. The lower bound is the start of the enclosing operator or the end of the last
-- operator before them that is not free. The upper bound is the end of the enclosing operator or the start of the next
-- operator that is not free.
data_order AS (
    SELECT
        thread_key // 1048576 AS window_no,  -- The window; thread_key is 2^20 times it, plus the thread (_stack_order).
        thread_key % 1048576 AS thread_id,  -- The thread.
        ordinal,  -- Position on the thread.
        event_id,  -- The operator or call that the thread enters or leaves.
        change,  -- 1 for entering, -1 for leaving.
        parent_event_id,  -- For an entry, the enclosing event.
        node_id,  -- Twice the event, plus 1 for its end.
        last_node_id,  -- The node before it on the thread.
        execution_node_id,  -- Its node in the execution trace; NULL if it was not joined.
        is_call,  -- A call of the runtime or driver.
        is_free,  -- Only data orders the operator among its neighbors.
        lower_node_id,  -- The node that it follows regardless of data; NULL if nothing bounds it.
        upper_place  -- Position of the node that follows it regardless of data; NULL if nothing bounds it.
    FROM bounded
    WHERE NOT is_around
),
-- Materialized, as in _window_waits: DuckDB may otherwise join each edge with each window of its trace first.
producing AS MATERIALIZED (
    SELECT w.trace_id, d.window_no, d.thread_id, d.event_id, d.node_id, d.execution_node_id, d.ordinal
    FROM data_order AS d
    JOIN _asked_windows AS w ON w.window_no = d.window_no
    WHERE d.change = -1 AND d.is_free
),
made AS MATERIALIZED (
    SELECT e.window_no, e.thread_id, e.event_id, e.node_id, e.ordinal, x.consumer_id
    FROM execution_edges AS x
    JOIN producing AS e ON e.trace_id = x.trace_id AND e.execution_node_id = x.producer_id
),
flows AS (
    SELECT
        made.window_no, made.thread_id, made.event_id AS src_event_id, needs.event_id AS dst_event_id,
        needs.parent_event_id, needs.ordinal, needs.last_node_id = made.node_id AS is_next
    FROM made
    JOIN data_order AS needs
        ON needs.window_no = made.window_no AND needs.execution_node_id = made.consumer_id AND needs.change = 1
            AND needs.is_free
            AND needs.thread_id = made.thread_id AND needs.ordinal > made.ordinal
),
-- One row: an operator that needs data which another operator on its thread produced or read, in a window with data
-- dependencies.
-- How: the execution trace's edges between free operators that ended and started in that order. If an operator that
-- encloses the consumer has the same need, only the outer operator counts.
data_flows AS (
    SELECT
        f.window_no,  -- The window.
        f.thread_id,  -- The thread.
        f.src_event_id,  -- The operator that must end first.
        f.dst_event_id,  -- The operator that needs the data.
        f.ordinal,  -- Position of its start on the thread.
        f.is_next  -- No node is between them, so the serial edge already is the dependency.
    FROM flows AS f
    LEFT JOIN flows AS around
        ON around.window_no = f.window_no AND around.src_event_id = f.src_event_id
            AND around.dst_event_id = f.parent_event_id
    WHERE around.window_no IS NULL
),
-- One row: a serial edge of a CPU thread that is dropped because no data flows along it.
-- How: edges from the end of a free operator to the start of the next operator, if the next operator is free and needs
-- no data of the first.
fallen_edges AS (
    SELECT
        after.window_no,  -- The window.
        after.thread_id,  -- The thread.
        after.ordinal,  -- Position of the edge's destination on the thread.
        before.node_id AS src_node_id,  -- Source node: the end of an operator.
        after.node_id AS dst_node_id,  -- Destination node: the start of the next.
        after.lower_node_id,  -- The node that the destination still follows; NULL if there is none.
        before.upper_place  -- Position of the node that still follows the source; NULL if there is none.
    FROM data_order AS after
    JOIN data_order AS before ON before.window_no = after.window_no AND before.node_id = after.last_node_id
    LEFT JOIN data_flows AS f
        ON f.window_no = after.window_no AND f.src_event_id = before.event_id AND f.dst_event_id = after.event_id
    WHERE after.change = 1 AND before.change = -1 AND after.is_free AND before.is_free AND f.window_no IS NULL
),
-- One row: an edge between neighboring nodes of a CPU thread.
-- How: the edges of cpu_edges, without those that data dependencies replace.
call_stack_edges AS (
    SELECT
        c.window_no,  -- The window.
        2 AS kind,  -- See _edges.
        c.thread_id * 1099511627776 + c.ordinal AS ordinal,  -- 2^40 times the thread, plus the position on it.
        c.src_node_id,  -- Source node.
        c.dst_node_id,  -- Destination node.
        c.edge_code,  -- Type of the edge.
        -- Weight as measured, ns.
        CASE WHEN c.edge_code = edge_code('DEPENDENCY') THEN 0 ELSE c.dts_ns END AS weight_ns,
        c.ends_blocking_call,  -- The edge leads to the end of a blocking call.
        c.attributed_event_id,  -- Event that the edge's time belongs to.
        FALSE AS is_earlier,  -- A wait for GPU work from outside the window.
        FALSE AS is_inferred  -- A wait that no cuda_sync row records.
    FROM cpu_edges AS c
    LEFT JOIN fallen_edges AS f ON f.window_no = c.window_no AND f.thread_id = c.thread_id AND f.ordinal = c.ordinal
    WHERE f.window_no IS NULL
),
ends AS (
    SELECT window_no, thread_id, ordinal, src_event_id * 2 + 1 AS src_node_id
    FROM data_flows
    WHERE NOT is_next
    UNION ALL
    SELECT window_no, thread_id, ordinal, lower_node_id FROM fallen_edges WHERE lower_node_id IS NOT NULL
    UNION ALL
    SELECT window_no, thread_id, upper_place, src_node_id FROM fallen_edges WHERE upper_place IS NOT NULL
),
calls AS (
    SELECT
        window_no, thread_id, ordinal, node_id, change, last_node_id,
        lag(node_id) OVER thread AS call_node_id,
        lag(change) OVER thread AS call_change
    FROM data_order
    WHERE is_call
    WINDOW thread AS (PARTITION BY window_no, thread_id ORDER BY ordinal)
),
replacing AS (
    SELECT
        e.window_no, e.src_node_id, c.dst_node_id, c.edge_code, c.dts_ns, c.ends_blocking_call, c.attributed_event_id
    FROM ends AS e
    JOIN cpu_edges AS c ON c.window_no = e.window_no AND c.thread_id = e.thread_id AND c.ordinal = e.ordinal
    UNION ALL
    SELECT c.window_no, c.call_node_id, c.node_id, edge_code('DEPENDENCY'), 0, FALSE, NULL
    FROM calls AS c
    WHERE c.change = 1 AND c.call_change = -1 AND c.call_node_id <> c.last_node_id
),
-- One row: an edge of a CPU thread that replaces serial edges that were dropped.
-- How: an operator follows the producers of its data and the bounds of its interval (data_order). A call follows the
-- call before it. Except between calls, an edge weighs as much as the serial edge into its destination, so host time
-- right before an operator stays with that operator.
data_edges AS (
    SELECT
        r.window_no,  -- The window.
        5 AS kind,  -- See _edges.
        -- Position in the order of destination and source.
        row_number() OVER (PARTITION BY r.window_no ORDER BY r.dst_node_id, r.src_node_id) AS ordinal,
        r.src_node_id,  -- Source node.
        r.dst_node_id,  -- Destination node.
        r.edge_code,  -- Type of the edge.
        -- Time of the thread right before the destination, ns; 0 for dependencies.
        CASE WHEN r.edge_code = edge_code('DEPENDENCY') THEN 0 ELSE r.dts_ns END AS weight_ns,
        r.ends_blocking_call,  -- The edge leads to the end of a blocking call.
        r.attributed_event_id,  -- Event that the edge's time belongs to.
        FALSE AS is_earlier,  -- A wait for GPU work from outside the window.
        FALSE AS is_inferred  -- A wait that no cuda_sync row records.
    FROM replacing AS r
)
SELECT
    window_no,  -- The window.
    kind,  -- See _edges.
    ordinal,  -- Position among the edges of its kind.
    src_node_id,  -- Source node.
    dst_node_id,  -- Destination node.
    edge_code,  -- Type of the edge, in edge_types.
    weight_ns,  -- Weight as measured, ns.
    ends_blocking_call,  -- The edge leads to the end of a blocking call, whose time does not count.
    attributed_event_id,  -- Event that the edge's time belongs to.
    is_earlier,  -- A wait for GPU work from outside the window.
    is_inferred  -- A wait that no cuda_sync row records.
FROM lock_edges
UNION ALL
SELECT
    window_no, kind, ordinal, src_node_id, dst_node_id, edge_code, weight_ns,
    ends_blocking_call, attributed_event_id, is_earlier, is_inferred
FROM call_stack_edges
UNION ALL
SELECT
    window_no, kind, ordinal, src_node_id, dst_node_id, edge_code, weight_ns,
    ends_blocking_call, attributed_event_id, is_earlier, is_inferred
FROM data_edges
