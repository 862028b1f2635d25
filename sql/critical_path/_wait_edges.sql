-- One row: an edge from GPU work to the work or the call that waited for it, as cuda_sync rows tell.
-- part of: _edge_parts
-- How: the edges of _sync_edges from within the window; where work waits for the work before it on its own stream, the
-- order of the stream already says so.
WITH ordered AS (
    SELECT
        s.window_no, s.src_event_id, s.dst_event_id, s.dst_is_start, s.is_inferred,
        -- Computed here and not a condition of the join, which would compare every wait with every piece of work.
        coalesce(
            k.last_event_id = s.src_event_id
            AND (k.overlapped_ts_ns IS NOT NULL OR k.may_wait_for_last AND NOT k.waited_for_launch)
            OR k.ordered_after_event_id = s.src_event_id,
            FALSE
        ) AS is_order_of_stream
    FROM _sync_edges AS s
    JOIN critical_path_windows AS w ON w.window_no = s.window_no AND NOT w.covers_window
    LEFT JOIN _kernel_nodes AS k ON k.window_no = s.window_no AND k.event_id = s.dst_event_id
    WHERE s.src_in_window
),
waits AS (
    SELECT window_no, src_event_id, dst_event_id, dst_is_start, is_inferred
    FROM ordered
    WHERE NOT (is_order_of_stream AND dst_is_start)
)
SELECT
    w.window_no,  -- The window.
    4 AS kind,  -- See _edges.
    -- Place in order of destination and source.
    row_number() OVER (PARTITION BY w.window_no ORDER BY w.dst_event_id, w.src_event_id) AS ordinal,
    w.src_event_id * 2 + 1 AS src_node_id,  -- Source node.
    w.dst_event_id * 2 + CASE WHEN w.dst_is_start THEN 0 ELSE 1 END AS dst_node_id,  -- Destination node.
    t.sync_dependency AS edge_code,  -- Type of the edge.
    0 AS weight_ns,  -- Weight as measured, ns.
    FALSE AS ends_blocking_call,  -- It leads to the end of a blocking call.
    CAST(NULL AS BIGINT) AS attributed_event_id,  -- Event whose time it is.
    FALSE AS is_earlier,  -- A wait for GPU work from outside the window.
    w.is_inferred  -- A wait that no cuda_sync row shows.
FROM waits AS w
CROSS JOIN _edge_codes AS t
