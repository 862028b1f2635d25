-- One row: an edge of the longest path of a window, in order.
-- How: the edges that networkx chose, with what they are bound by (rules/bound_by.csv).
-- check: unique(trace_id, window_id, seq)
WITH sided AS (
    SELECT
        l.seq, w.profile, e.*, a.name, a.cat,
        CASE WHEN a.event_id IS NULL THEN '*' WHEN k.class IS NULL OR a.side = 'cpu' THEN 'cpu' ELSE 'gpu' END AS side,
        coalesce(k.class, '*') AS class
    FROM longest_path AS l
    JOIN critical_path_edges AS e ON e.trace_id = l.trace_id AND e.window_id = l.window_id AND e.edge_id = l.edge_id
    JOIN critical_path_windows AS w ON w.trace_id = l.trace_id AND w.window_id = l.window_id
    LEFT JOIN _clip AS a
        ON a.trace_id = e.trace_id AND a.window_id = e.window_id
        AND a.event_id = coalesce(e.attributed_event_id, CASE WHEN e.edge_type = 'KERNEL_LAUNCH_DELAY' THEN e.dst_event_id END)
    LEFT JOIN _kernel_class AS k ON k.profile = w.profile AND k.cat = a.cat AND k.name = a.name
),
ruled AS (
    SELECT
        s.*, b.bound_by,
        row_number() OVER (PARTITION BY s.trace_id, s.window_id, s.seq ORDER BY b.rule_rank) AS choice
    FROM sided AS s
    JOIN bound_by AS b
        ON b.profile = s.profile AND b.edge_type = s.edge_type
        AND (b.side = '*' OR b.side = s.side) AND (b.class = '*' OR b.class = s.class)
)
SELECT
    trace_id,  -- The trace.
    window_id,  -- The window.
    seq,  -- Place on the path, from 1.
    edge_id,  -- The edge in critical_path_edges.
    src_event_id,  -- Event of the source node.
    src_is_start,  -- The source is the event's start.
    dst_event_id,  -- Event of the destination node.
    dst_is_start,  -- The destination is the event's start.
    edge_type,  -- Type of the edge.
    weight_ns,  -- Weight as measured, ns.
    path_weight_ns,  -- Weight as used on the path, ns.
    attributed_event_id,  -- Event whose time it is; NULL for edges without time.
    coalesce(attributed_event_id, dst_event_id) AS event_id,  -- The event to show for this edge.
    name,  -- Name of the attributed event; of the launched kernel for a launch delay; NULL for edges without time.
    cat,  -- Its category.
    coalesce(bound_by, '') AS bound_by  -- cpu_bound, gpu_compute_bound, … by rules/bound_by.csv.
FROM ruled
WHERE choice = 1
