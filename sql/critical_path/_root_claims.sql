-- One row: an edge from the first node of a window that the path covers to a node that nothing in the window led to.
-- part of: _claim_parts
-- How: the first node of a thread, and GPU work with no launch and no work before it. The earliest is the start.
WITH roots AS (
    SELECT h.window_no, h.node_id, h.at_ns, FALSE AS is_work
    FROM _host_roots AS h
    UNION ALL
    SELECT k.window_no, k.event_id * 2, k.ts_ns - w.start_ns, TRUE
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
)
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
