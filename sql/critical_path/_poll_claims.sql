-- One row: an edge from GPU work to the call with which a loop that asked for it went on, in a window that the path
-- covers.
-- part of: _claim_parts
-- How: from the end of the work; from its start, as its own time, where the call had begun by then. Where the first
-- call found the work done, the edge claims the shortest time that a loop of the window took to see it.
-- How late a loop sees it is chance, up to the time from one call to the next: a part of that is the call's own, the
-- rest what the loop does in between. So of a window's loops that share has edges of host time, and the others the
-- call's.
WITH loops AS (
    SELECT
        window_no, event_id, node_id, source_event_id, source_start_ns, start_ns, has_waited,
        source_end_ns > start_ns AS is_late, greatest(start_ns - source_end_ns, 0) AS passed_ns,
        sum(CASE WHEN has_waited THEN pause_share ELSE 0 END) OVER (
            PARTITION BY window_no ORDER BY start_ns, event_id ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        ) AS pauses,
        CASE WHEN has_waited THEN pause_share ELSE 0 END AS pause_share,
        coalesce(
            min(CASE WHEN has_waited THEN greatest(start_ns - source_end_ns, 0) END) OVER (PARTITION BY window_no), 0
        ) AS least_ns
    FROM _poll_waits
    WHERE source_in_window
),
waits AS (
    SELECT *, has_waited AND NOT is_late AND floor(pauses) > floor(pauses - pause_share) AS is_pause FROM loops
),
codes AS (
    SELECT max(edge_code) AS host_gap FROM edge_types WHERE edge_type = 'HOST_GAP'
)
SELECT
    w.window_no,  -- The window.
    5 AS kind,  -- See _edges.
    -- Place, behind the edges of calls that wait themselves.
    1099511627776 + row_number() OVER (PARTITION BY w.window_no ORDER BY w.event_id) AS ordinal,
    w.source_event_id * 2 + CASE WHEN w.is_late THEN 0 ELSE 1 END AS src_node_id,  -- Source node.
    w.node_id AS dst_node_id,  -- Destination node.
    -- Type of the edge.
    CASE
        WHEN w.is_late THEN t.operator_kernel
        WHEN NOT w.has_waited THEN t.sync_dependency
        WHEN w.is_pause THEN g.host_gap
        ELSE t.operator_kernel
    END AS edge_code,
    -- What the edge claims of the time that passed, ns.
    CASE
        WHEN NOT w.has_waited THEN least(w.passed_ns, w.least_ns)
        WHEN w.is_late THEN w.start_ns - w.source_start_ns
        ELSE w.passed_ns
    END AS claim_ns,
    -- Event whose time it is.
    CASE WHEN w.is_late THEN w.source_event_id WHEN NOT w.is_pause THEN w.event_id END AS attributed_event_id,
    FALSE AS is_earlier,  -- A wait for GPU work from outside the window.
    TRUE AS is_inferred,  -- No cuda_sync row shows what a call asks for.
    FALSE AS yields  -- It gives way to edges that other models add.
FROM waits AS w
CROSS JOIN _edge_codes AS t
CROSS JOIN codes AS g
