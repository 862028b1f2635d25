-- One row: an edge into GPU work, or its own time.
-- part of: _edge_parts
-- How: in a window that the path does not cover (_work_claims), for each piece of GPU work of _kernel_nodes its own
-- time, its launch, and what came before it on its stream.
SELECT
    k.window_no,  -- The window.
    3 AS kind,  -- See _edges.
    k.ordinal * 8 AS ordinal,  -- Eight times the place of the work in the window, plus which of its edges it is.
    k.event_id * 2 AS src_node_id,  -- Source node.
    k.event_id * 2 + 1 AS dst_node_id,  -- Destination node.
    t.operator_kernel AS edge_code,  -- Type of the edge.
    k.dur_ns AS weight_ns,  -- Weight as measured, ns.
    FALSE AS ends_blocking_call,  -- It leads to the end of a blocking call.
    k.event_id AS attributed_event_id,  -- Event whose time it is.
    FALSE AS is_earlier,  -- A wait for GPU work from outside the window.
    FALSE AS is_inferred  -- A wait that no cuda_sync row shows.
FROM _kernel_nodes AS k
CROSS JOIN _edge_codes AS t
WHERE NOT k.covers_window
UNION ALL
SELECT
    k.window_no, 3, k.ordinal * 8 + 1, k.launch_event_id * 2, k.event_id * 2, t.kernel_launch_delay,
    CASE WHEN k.waited_for_launch THEN k.ts_ns - k.launch_ts_ns ELSE 0 END, FALSE, NULL, FALSE, FALSE
FROM _kernel_nodes AS k
CROSS JOIN _edge_codes AS t
WHERE
    NOT k.covers_window AND (k.waited_for_launch OR k.zero_weight_launch AND k.launch_in_window)
    AND NOT k.held_up_since_launch
UNION ALL
-- Launched behind work from outside the window: not a launch delay, and there is nothing in the window to follow.
SELECT
    k.window_no, 3, k.ordinal * 8 + 1, k.launch_event_id * 2, k.event_id * 2, t.kernel_kernel_delay,
    k.ts_ns - k.launch_ts_ns, FALSE, NULL, k.waits_for_earlier_work, FALSE
FROM _kernel_nodes AS k
CROSS JOIN _edge_codes AS t
WHERE NOT k.covers_window AND k.held_up_since_launch
UNION ALL
SELECT
    k.window_no, 3, k.ordinal * 8 + 2, k.last_event_id * 2 + 1, k.event_id * 2, t.kernel_kernel_delay,
    k.ts_ns - k.last_end_ns, FALSE,
    CASE WHEN NOT k.waits_for_earlier_work THEN k.last_event_id END, k.waits_for_earlier_work, FALSE
FROM _kernel_nodes AS k
CROSS JOIN _edge_codes AS t
WHERE NOT k.covers_window AND k.may_wait_for_last AND NOT k.waited_for_launch AND k.overlapped_ts_ns IS NULL
UNION ALL
-- Overlapping work: the time until the second began belongs to the first, and the second does not finish before the
-- first.
SELECT
    k.window_no, 3, k.ordinal * 8 + 3, k.last_event_id * 2, k.event_id * 2, t.operator_kernel,
    k.ts_ns - k.overlapped_ts_ns, FALSE, k.last_event_id, FALSE, FALSE
FROM _kernel_nodes AS k
CROSS JOIN _edge_codes AS t
WHERE NOT k.covers_window AND k.overlapped_ts_ns IS NOT NULL
UNION ALL
SELECT
    k.window_no, 3, k.ordinal * 8 + 4, k.last_event_id * 2 + 1, k.event_id * 2 + 1, t.dependency, 0, FALSE, NULL,
    FALSE, FALSE
FROM _kernel_nodes AS k
CROSS JOIN _edge_codes AS t
WHERE NOT k.covers_window AND k.overlapped_ts_ns IS NOT NULL AND k.last_end_ns <= k.ts_ns + k.dur_ns
UNION ALL
SELECT
    k.window_no, 3, k.ordinal * 8 + 5, k.ordered_after_event_id * 2 + CASE WHEN k.overlaps_previous THEN 0 ELSE 1 END,
    k.event_id * 2, t.dependency, 0, FALSE, NULL, FALSE, FALSE
FROM _kernel_nodes AS k
CROSS JOIN _edge_codes AS t
WHERE NOT k.covers_window AND k.ordered_after_event_id IS NOT NULL
