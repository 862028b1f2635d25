-- One row: an edge into GPU work, or its own time, in a window that the path covers.
-- part of: _claim_parts
-- How: its launch, the work before it on its stream, waits for other streams, and where nothing led to it, the start of
-- the window.
WITH
-- One row: an edge into GPU work, or its own time, in a window that the path covers.
-- How: for each piece of GPU work of _bound_work its own time, its launch, and the work before it.
work_claims AS (
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
            WHEN k.bound_by = 'launch' AND (k.waits_for_earlier_work OR k.held_up_since_launch)
                THEN t.kernel_kernel_delay
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
        k.window_no, 3, k.ordinal * 8 + 5,
        k.ordered_after_event_id * 2 + CASE WHEN k.overlaps_previous THEN 0 ELSE 1 END,
        k.event_id * 2, t.dependency, 0, NULL, FALSE, FALSE, FALSE
    FROM _bound_work AS k
    CROSS JOIN _edge_codes AS t
    WHERE k.ordered_after_event_id IS NOT NULL
),
stream_waits AS (
    SELECT
        w.*, k.ordinal, k.bound_by, k.gap_ns, k.since_wait_ns, w.source_end_ns > k.start_ns AS is_late,
        greatest(k.start_ns - w.source_end_ns, 0) AS passed_ns, k.start_ns - w.source_start_ns AS since_start_ns,
        coalesce(k.last_event_id = w.source_event_id OR k.ordered_after_event_id = w.source_event_id, FALSE) AS is_order
    FROM _possible_waits AS w
    JOIN _bound_work AS k ON k.window_no = w.window_no AND k.event_id = w.event_id
),
-- One row: an edge from GPU work to work on another stream that waited for it, in a window that the path covers.
-- How: from the end of the work; from its start, as its own time, where clocks say that it had not ended yet.
wait_claims AS (
    SELECT
        w.window_no,  -- The window.
        4 AS kind,  -- See _edges.
        row_number() OVER (PARTITION BY w.window_no ORDER BY w.event_id, w.source_event_id) AS ordinal,  -- Place.
        w.source_event_id * 2 + CASE WHEN w.is_late THEN 0 ELSE 1 END AS src_node_id,  -- Source node.
        w.event_id * 2 AS dst_node_id,  -- Destination node.
        -- Type of the edge.
        CASE
            WHEN w.is_late THEN t.operator_kernel
            WHEN w.is_inferred THEN t.kernel_kernel_delay
            ELSE t.sync_dependency
        END AS edge_code,
        CASE
            WHEN w.bound_by <> 'wait' OR w.passed_ns > w.since_wait_ns
                THEN CASE WHEN w.is_late THEN 0 ELSE least(w.gap_ns, w.passed_ns) END
            WHEN w.is_late THEN w.since_start_ns
            ELSE w.passed_ns
        END AS claim_ns,  -- What the edge claims of the time that passed, ns.
        CASE WHEN w.is_late THEN w.source_event_id END AS attributed_event_id,  -- Event whose time it is.
        FALSE AS is_earlier,  -- A wait for GPU work from outside the window.
        w.is_inferred,  -- A wait that no cuda_sync row shows.
        FALSE AS yields  -- It gives way to edges that other models add.
    FROM stream_waits AS w
    CROSS JOIN _edge_codes AS t
    WHERE NOT w.is_order
),
roots AS (
    SELECT h.window_no, h.node_id, h.at_ns, FALSE AS is_work
    FROM _host_roots AS h
    UNION ALL
    SELECT k.window_no, k.event_id * 2, k.start_ns - w.start_ns, TRUE
    FROM _bound_work AS k
    JOIN _asked_windows AS w ON w.window_no = k.window_no
    WHERE k.bound_by = 'start'
),
ranked AS (
    SELECT
        *,
        row_number() OVER in_time AS ordinal,
        first_value(node_id) OVER in_time AS start_node_id,
        first_value(at_ns) OVER in_time AS start_ns
    FROM roots
    WINDOW in_time AS (PARTITION BY window_no ORDER BY at_ns, node_id)
),
codes AS (
    SELECT max(edge_code) AS host_gap FROM edge_types WHERE edge_type = 'HOST_GAP'
),
-- One row: an edge from the first node of a window that the path covers to a node that nothing in the window led to.
-- How: the first node of a thread, and GPU work with no launch and no work before it. The earliest is the start.
root_claims AS (
    SELECT
        r.window_no,  -- The window.
        6 AS kind,  -- See _edges.
        r.ordinal,  -- Place in order of time.
        r.start_node_id AS src_node_id,  -- Source node: the window's first.
        r.node_id AS dst_node_id,  -- Destination node.
        CASE WHEN r.is_work THEN t.kernel_kernel_delay ELSE g.host_gap END AS edge_code,  -- Type of the edge.
        r.at_ns - r.start_ns AS claim_ns,  -- What the edge claims: all of the time that passed, ns.
        CAST(NULL AS BIGINT) AS attributed_event_id,  -- Event whose time it is: nobody's.
        r.is_work AS is_earlier,  -- A wait for GPU work from outside the window.
        FALSE AS is_inferred,  -- A wait that no cuda_sync row shows.
        TRUE AS yields  -- It gives way to edges that other models add.
    FROM ranked AS r
    CROSS JOIN _edge_codes AS t
    CROSS JOIN codes AS g
    WHERE r.ordinal > 1
)
SELECT
    window_no,  -- The window.
    kind,  -- See _edges.
    ordinal,  -- Place among the edges of its kind.
    src_node_id,  -- Source node.
    dst_node_id,  -- Destination node.
    edge_code,  -- Type of the edge, in edge_types.
    claim_ns,  -- What the edge claims of the time that passed, ns.
    attributed_event_id,  -- Event whose time it is.
    is_earlier,  -- A wait for GPU work from outside the window.
    is_inferred,  -- A wait that no cuda_sync row shows.
    yields  -- It gives way to edges that other models add.
FROM work_claims
UNION ALL
SELECT
    window_no, kind, ordinal, src_node_id, dst_node_id, edge_code, claim_ns,
    attributed_event_id, is_earlier, is_inferred, yields
FROM wait_claims
UNION ALL
SELECT
    window_no, kind, ordinal, src_node_id, dst_node_id, edge_code, claim_ns,
    attributed_event_id, is_earlier, is_inferred, yields
FROM root_claims
