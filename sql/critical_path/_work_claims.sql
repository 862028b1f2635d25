-- One row: an edge into GPU work, or its own time, in a window that the path covers.
-- part of: _claim_parts
-- How: for each piece of GPU work of _bound_work its own time, its launch, and the work before it.
SELECT
    k.window_no,  -- The window.
    3 AS kind,  -- See _edges.
    k.ordinal * 8 AS ordinal,  -- Eight times the place of the work in the window, plus which of its edges it is.
    k.event_id * 2 AS src_node_id,  -- Source node.
    k.event_id * 2 + 1 AS dst_node_id,  -- Destination node.
    t.operator_kernel AS edge_code,  -- Type of the edge.
    k.duration_ns AS claim_ns,  -- What the edge claims of the time that passed, ns.
    k.event_id AS attributed_event_id,  -- Event whose time it is.
    FALSE AS is_earlier,  -- A wait for GPU work from outside the window.
    FALSE AS is_inferred,  -- A wait that no cuda_sync row shows.
    FALSE AS yields  -- It gives way to edges that other models add.
FROM _bound_work AS k
CROSS JOIN _edge_codes AS t
UNION ALL
SELECT
    k.window_no, 3, k.ordinal * 8 + 1, k.launch_node_id, k.event_id * 2,
    -- Launched behind work from outside the window: not a launch delay.
    CASE
        WHEN k.bound_by = 'launch' AND (k.waits_for_earlier_work OR k.held_up_since_launch) THEN t.kernel_kernel_delay
        -- Begun before its launch, by its clock: the time is that of the operator which its thread was in.
        WHEN c.event_id IS NOT NULL THEN t.operator_kernel
        ELSE t.kernel_launch_delay
    END,
    CASE WHEN k.bound_by = 'launch' THEN k.since_launch_ns ELSE least(k.launch_ns, k.since_launch_ns) END,
    CASE WHEN NOT (k.waits_for_earlier_work OR coalesce(k.held_up_since_launch, FALSE)) THEN c.event_id END,
    k.bound_by = 'launch' AND k.waits_for_earlier_work, FALSE, FALSE
FROM _bound_work AS k
CROSS JOIN _edge_codes AS t
-- A key of its own, and none that is NULL: a condition over k beside it would compare every work with every call.
LEFT JOIN _clip AS c
    ON
        c.window_no = k.window_no AND c.is_operator
        AND c.event_id * 2 = CASE WHEN k.is_early THEN k.launch_node_id ELSE -1 - k.event_id END
WHERE k.since_launch_ns IS NOT NULL
UNION ALL
SELECT
    k.window_no, 3, k.ordinal * 8 + 2, k.last_event_id * 2 + 1, k.event_id * 2, t.kernel_kernel_delay,
    CASE WHEN k.bound_by = 'last' THEN k.since_last_ns ELSE least(k.gap_ns, k.since_last_ns) END, NULL,
    k.bound_by = 'last' AND k.waits_for_earlier_work, FALSE, FALSE
FROM _bound_work AS k
CROSS JOIN _edge_codes AS t
WHERE k.since_last_ns IS NOT NULL AND NOT k.overlaps_last
UNION ALL
-- Overlapping work: the time until the second began belongs to the first, and the second does not finish before the
-- first.
SELECT
    k.window_no, 3, k.ordinal * 8 + 3, k.last_event_id * 2, k.event_id * 2, t.operator_kernel,
    k.since_last_ns, k.last_event_id, FALSE, FALSE, FALSE
FROM _bound_work AS k
CROSS JOIN _edge_codes AS t
WHERE k.overlaps_last
UNION ALL
SELECT
    k.window_no, 3, k.ordinal * 8 + 4, k.last_event_id * 2 + 1, k.event_id * 2 + 1, t.dependency, 0, NULL, FALSE,
    FALSE, FALSE
FROM _bound_work AS k
CROSS JOIN _edge_codes AS t
WHERE k.overlaps_last AND k.ends_after_last
UNION ALL
SELECT
    k.window_no, 3, k.ordinal * 8 + 5, k.ordered_after_event_id * 2 + CASE WHEN k.overlaps_previous THEN 0 ELSE 1 END,
    k.event_id * 2, t.dependency, 0, NULL, FALSE, FALSE, FALSE
FROM _bound_work AS k
CROSS JOIN _edge_codes AS t
WHERE k.ordered_after_event_id IS NOT NULL
