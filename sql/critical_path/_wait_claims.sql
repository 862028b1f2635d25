-- One row: an edge from GPU work to work on another stream that waited for it, in a window that the path covers.
-- part of: _claim_parts
-- How: from the end of the work; from its start, as its own time, where clocks say that it had not ended yet.
WITH waits AS (
    SELECT
        w.*, k.ordinal, k.bound_by, k.gap_ns, k.since_wait_ns, w.source_end_ns > k.ts_ns AS is_late,
        greatest(k.ts_ns - w.source_end_ns, 0) AS passed_ns, k.ts_ns - w.source_start_ns AS since_start_ns,
        coalesce(k.last_event_id = w.source_event_id OR k.ordered_after_event_id = w.source_event_id, FALSE) AS is_order
    FROM _possible_waits AS w
    JOIN _bound_work AS k ON k.window_no = w.window_no AND k.event_id = w.event_id
)
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
FROM waits AS w
CROSS JOIN _edge_codes AS t
WHERE NOT w.is_order
