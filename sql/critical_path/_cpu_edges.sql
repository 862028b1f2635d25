-- One row: an edge between neighbouring nodes of a CPU thread.
-- How: the thread's nodes in stack order; entering at the top of the thread is a dependency without time, all else takes the time between (HTA 2.8.5).
-- Between calls under the runtime lock the lock edges speak instead, except from the end of one to the start of the next.
WITH nodes AS (
    SELECT
        *,
        sum(change) OVER (
            PARTITION BY trace_id, window_id, thread_id ORDER BY place
            ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        ) AS open_after,
        lag(event_id) OVER thread AS src_event_id,
        lag(change) OVER thread AS src_change,
        lag(at_ns) OVER thread AS src_ns,
        lag(is_lock) OVER thread AS src_is_lock,
        lag(parent_event_id) OVER thread AS src_parent_event_id
    FROM _stack_order
    WHERE is_operator
    WINDOW thread AS (PARTITION BY trace_id, window_id, thread_id ORDER BY place)
)
SELECT
    trace_id,  -- The trace.
    window_id,  -- The window.
    thread_id,  -- The thread.
    place,  -- Place on the thread.
    src_event_id,  -- Event of the source node.
    src_change = 1 AS src_is_start,  -- The source is the event's start.
    src_ns,  -- Time of the source, ns.
    event_id AS dst_event_id,  -- Event of the destination node.
    change = 1 AS dst_is_start,  -- The destination is the event's start.
    at_ns AS dst_ns,  -- Time of the destination, ns.
    CASE WHEN change = 1 AND open_after = 1 THEN 'DEPENDENCY' ELSE 'OPERATOR_KERNEL' END AS edge_type,  -- Type of the edge.
    change = -1 AND is_blocking AS ends_blocking_call,  -- It runs into the end of a blocking call.
    CASE
        WHEN change = 1 AND open_after = 1 THEN NULL
        WHEN src_change = 1 THEN src_event_id
        WHEN change = -1 THEN event_id
        ELSE src_parent_event_id
    END AS attributed_event_id  -- Event whose time it is (HTA 2.8.6).
FROM nodes
WHERE
    src_event_id IS NOT NULL
    AND NOT (src_is_lock AND is_lock AND NOT (src_change = -1 AND change = 1))
