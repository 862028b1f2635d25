-- One row: an edge from GPU work to the end of a call that waited for it, or found it done, in a window that the path
-- covers.
-- part of: _claim_parts
-- How: the call returns a little after the work that ended last; what it takes beyond 50 us is its own time. Where it
-- found the work done, the edge claims the shortest return of the window (2 us where there is none), or all of it where
-- that is its own time: cudaFree takes as long after a wait as it did without one. From the work's start, as its own
-- time, where clocks say that it had not ended yet.
WITH returns AS (
    SELECT window_no, min(remaining_ns) AS least_ns
    FROM _bound_calls
    WHERE source_in_window AND remaining_ns <= 50000
    GROUP BY window_no
),
waits AS (
    SELECT
        w.*,
        CASE
            WHEN b.event_id IS NULL AND w.is_inferred AND NOT w.is_launch AND w.end_ns - w.start_ns > 50000
                THEN w.end_ns - w.start_ns
            ELSE coalesce(b.remaining_ns, r.least_ns, 2000)
        END AS remaining_ns, w.source_end_ns > w.end_ns AS is_late,
        coalesce(b.source_event_id = w.source_event_id, FALSE) AS has_bound,
        greatest(w.end_ns - w.source_end_ns, 0) AS passed_ns
    FROM _call_waits AS w
    LEFT JOIN _bound_calls AS b ON b.window_no = w.window_no AND b.event_id = w.event_id
    LEFT JOIN returns AS r ON r.window_no = w.window_no
    LEFT JOIN _left_out AS o ON o.window_no = w.window_no AND o.event_id = w.event_id
    WHERE w.source_in_window AND o.event_id IS NULL
)
SELECT
    w.window_no,  -- The window.
    5 AS kind,  -- See _edges.
    row_number() OVER (PARTITION BY w.window_no ORDER BY w.event_id, w.source_event_id) AS ordinal,  -- Place.
    w.source_event_id * 2 + CASE WHEN w.is_late THEN 0 ELSE 1 END AS src_node_id,  -- Source node.
    w.event_id * 2 + 1 AS dst_node_id,  -- Destination node.
    -- Type of the edge.
    CASE
        WHEN w.is_late OR least(w.passed_ns, w.remaining_ns) > 50000 THEN t.operator_kernel
        ELSE t.sync_dependency
    END AS edge_code,
    CASE
        WHEN w.is_late AND w.has_bound THEN w.end_ns - w.source_start_ns
        WHEN w.is_late THEN 0
        ELSE least(w.passed_ns, w.remaining_ns)
    END AS claim_ns,  -- What the edge claims of the time that passed, ns.
    CASE WHEN w.is_late THEN w.source_event_id ELSE w.event_id END AS attributed_event_id,  -- Event whose time it is.
    FALSE AS is_earlier,  -- A wait for GPU work from outside the window.
    w.is_inferred,  -- A wait that no cuda_sync row shows.
    FALSE AS yields  -- It gives way to edges that other models add.
FROM waits AS w
CROSS JOIN _edge_codes AS t
