-- One row: an edge into GPU work, or from GPU work to the work or call that waited for it, in a window that the path
-- does not cover.
-- part of: _edge_parts
-- How: edges for its own time, its launch, the work before it on its stream, and recorded or inferred waits.
WITH
-- One row: an edge into GPU work, or its own time.
-- How: for each GPU activity of _kernel_nodes its own time, its launch, and the work before it on its stream.
-- _gpu_claims has these edges in windows with a covering path.
kernel_edges AS (
    SELECT
        k.window_no,  -- The window.
        3 AS kind,  -- See _edges.
        -- Eight times the activity's position in the window, plus the edge's number among its edges.
        k.ordinal * 8 AS ordinal,
        k.event_id * 2 AS src_node_id,  -- Source node.
        k.event_id * 2 + 1 AS dst_node_id,  -- Destination node.
        edge_code('OPERATOR_KERNEL') AS edge_code,  -- Type of the edge.
        k.duration_ns AS weight_ns,  -- Weight as measured, ns.
        FALSE AS ends_blocking_call,  -- The edge leads to the end of a blocking call.
        k.event_id AS attributed_event_id,  -- Event that the edge's time belongs to.
        FALSE AS is_earlier,  -- A wait for GPU work from outside the window.
        FALSE AS is_inferred  -- A wait that no cuda_sync row records.
    FROM _kernel_nodes AS k
    WHERE NOT k.covers_window
    UNION ALL
    SELECT
        k.window_no, 3, k.ordinal * 8 + 1, k.launch_event_id * 2, k.event_id * 2, edge_code('KERNEL_LAUNCH_DELAY'),
        CASE WHEN k.waited_for_launch THEN k.start_ns - k.launch_ts_ns ELSE 0 END, FALSE, NULL, FALSE, FALSE
    FROM _kernel_nodes AS k
    WHERE
        NOT k.covers_window AND (k.waited_for_launch OR k.zero_weight_launch AND k.launch_in_window)
        AND NOT k.held_up_since_launch
    UNION ALL
    -- Work launched behind work from outside the window: the edge is not a launch delay, and the window contains no
    -- work that it follows.
    SELECT
        k.window_no, 3, k.ordinal * 8 + 1, k.launch_event_id * 2, k.event_id * 2, edge_code('KERNEL_KERNEL_DELAY'),
        k.start_ns - k.launch_ts_ns, FALSE, NULL, k.waits_for_earlier_work,
        k.waits_for_earlier_work AND k.outside_is_inferred
    FROM _kernel_nodes AS k
    WHERE NOT k.covers_window AND k.held_up_since_launch
    UNION ALL
    SELECT
        k.window_no, 3, k.ordinal * 8 + 2, k.last_event_id * 2 + 1, k.event_id * 2, edge_code('KERNEL_KERNEL_DELAY'),
        k.start_ns - k.last_end_ns, FALSE,
        CASE WHEN NOT k.waits_for_earlier_work THEN k.last_event_id END, k.waits_for_earlier_work,
        k.waits_for_earlier_work AND k.outside_is_inferred
    FROM _kernel_nodes AS k
    WHERE NOT k.covers_window AND k.may_wait_for_last AND NOT k.waited_for_launch AND k.overlapped_ts_ns IS NULL
    UNION ALL
    -- For overlapping work, the time until the second activity begins belongs to the first. The second activity does
    -- not end before the first.
    SELECT
        k.window_no, 3, k.ordinal * 8 + 3, k.last_event_id * 2, k.event_id * 2, edge_code('OPERATOR_KERNEL'),
        k.start_ns - k.overlapped_ts_ns, FALSE, k.last_event_id, FALSE, FALSE
    FROM _kernel_nodes AS k
    WHERE NOT k.covers_window AND k.overlapped_ts_ns IS NOT NULL
    UNION ALL
    SELECT
        k.window_no, 3, k.ordinal * 8 + 4, k.last_event_id * 2 + 1, k.event_id * 2 + 1, edge_code('DEPENDENCY'), 0,
        FALSE, NULL, FALSE, FALSE
    FROM _kernel_nodes AS k
    WHERE NOT k.covers_window AND k.overlapped_ts_ns IS NOT NULL AND k.last_end_ns <= k.start_ns + k.duration_ns
    UNION ALL
    SELECT
        k.window_no, 3, k.ordinal * 8 + 5,
        k.ordered_after_event_id * 2 + CASE WHEN k.overlaps_previous THEN 0 ELSE 1 END,
        k.event_id * 2, edge_code('DEPENDENCY'), 0, FALSE, NULL, FALSE, FALSE
    FROM _kernel_nodes AS k
    WHERE
        NOT k.covers_window AND k.ordered_after_event_id IS NOT NULL
        -- Excludes pairs of nodes that one of the edges above already joins.
        AND NOT (
            k.ordered_after_event_id = k.last_event_id
            AND (k.overlapped_ts_ns IS NOT NULL OR k.may_wait_for_last AND NOT k.waited_for_launch)
        )
),
ordered AS (
    SELECT
        s.window_no, s.event_id, s.is_call, s.source_event_id, s.is_inferred,
        -- Computed here, because in the join condition it would make DuckDB compare every wait with every GPU activity.
        coalesce(
            k.last_event_id = s.source_event_id
            AND (k.overlapped_ts_ns IS NOT NULL OR k.may_wait_for_last AND NOT k.waited_for_launch)
            OR k.ordered_after_event_id = s.source_event_id,
            FALSE
        ) AS is_order_of_stream
    FROM _window_waits AS s
    JOIN _asked_windows AS w ON w.window_no = s.window_no AND NOT w.covers_window
    LEFT JOIN _kernel_nodes AS k ON k.window_no = s.window_no AND k.event_id = s.event_id
    WHERE s.is_recorded AND s.source_in_window
),
waits AS (
    SELECT window_no, event_id, is_call, source_event_id, is_inferred
    FROM ordered
    WHERE is_call OR NOT is_order_of_stream
),
-- One row: an edge from GPU work to the work or the call that waited for it, as cuda_sync rows record.
-- How: the recorded waits of _window_waits for work of the window. If work waits for the work before it on its own
-- stream, the order of the stream already has that edge.
wait_edges AS (
    SELECT
        w.window_no,  -- The window.
        4 AS kind,  -- See _edges.
        -- Position in the order of destination and source.
        row_number() OVER (PARTITION BY w.window_no ORDER BY w.event_id, w.source_event_id) AS ordinal,
        w.source_event_id * 2 + 1 AS src_node_id,  -- Source node.
        w.event_id * 2 + CASE WHEN w.is_call THEN 1 ELSE 0 END AS dst_node_id,  -- Destination node.
        edge_code('SYNC_DEPENDENCY') AS edge_code,  -- Type of the edge.
        0 AS weight_ns,  -- Weight as measured, ns.
        FALSE AS ends_blocking_call,  -- The edge leads to the end of a blocking call.
        CAST(NULL AS BIGINT) AS attributed_event_id,  -- Event that the edge's time belongs to.
        FALSE AS is_earlier,  -- A wait for GPU work from outside the window.
        w.is_inferred  -- A wait that no cuda_sync row records.
    FROM waits AS w
),
-- One row: an edge for a wait that no cuda_sync row records.
-- How: the other waits of _window_waits for work of the window.
inferred_wait_edges AS (
    SELECT
        i.window_no,  -- The window.
        6 AS kind,  -- See _edges.
        -- Position in the order of destination and source.
        row_number() OVER (PARTITION BY i.window_no ORDER BY i.event_id, i.source_event_id) AS ordinal,
        i.source_event_id * 2 + 1 AS src_node_id,  -- Source node.
        i.event_id * 2 + CASE WHEN i.is_call THEN 1 ELSE 0 END AS dst_node_id,  -- Destination node.
        -- Type of the edge.
        CASE
            WHEN i.is_call THEN edge_code('OPERATOR_KERNEL') ELSE edge_code('KERNEL_KERNEL_DELAY')
        END AS edge_code,
        greatest(i.at_ns - i.source_end_ns, 0) AS weight_ns,  -- Weight as measured, ns.
        i.is_call AS ends_blocking_call,  -- The edge leads to the end of a blocking call.
        -- Event that the edge's time belongs to.
        CASE WHEN i.is_call THEN i.event_id ELSE i.source_event_id END AS attributed_event_id,
        FALSE AS is_earlier,  -- A wait for GPU work from outside the window.
        TRUE AS is_inferred  -- A wait that no cuda_sync row records.
    FROM _window_waits AS i
    JOIN _asked_windows AS w ON w.window_no = i.window_no AND NOT w.covers_window
    WHERE NOT i.is_recorded AND i.source_in_window
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
FROM kernel_edges
UNION ALL
SELECT
    window_no, kind, ordinal, src_node_id, dst_node_id, edge_code, weight_ns,
    ends_blocking_call, attributed_event_id, is_earlier, is_inferred
FROM wait_edges
UNION ALL
SELECT
    window_no, kind, ordinal, src_node_id, dst_node_id, edge_code, weight_ns,
    ends_blocking_call, attributed_event_id, is_earlier, is_inferred
FROM inferred_wait_edges
