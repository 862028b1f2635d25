-- One row: an edge of the longest path of a window, in order.
-- How: the edges that networkx chose, with what they are bound by (rules/bound_by.csv).
-- check: unique(trace_id, window_id, seq)
WITH chosen AS (
    SELECT
        w.trace_id, w.window_id, w.profile, p.summary_of_measured, l.seq, e.*, t.edge_type,
        coalesce(e.attributed_event_id, CASE WHEN t.edge_type = 'KERNEL_LAUNCH_DELAY' THEN e.dst_node_id // 2 END) AS shown_event_id
    FROM longest_path AS l
    JOIN critical_path_windows AS w ON w.trace_id = l.trace_id AND w.window_id = l.window_id
    JOIN _profiles AS p ON p.view_no = w.view_no
    JOIN _edges AS e ON e.window_no = w.window_no AND e.edge_id = l.edge_id
    JOIN edge_types AS t ON t.edge_code = e.edge_code
),
sided AS (
    SELECT
        c.*, a.name, a.cat,
        CASE
            WHEN a.event_id IS NULL THEN '*'
            WHEN g.event_id IS NULL THEN 'cpu'
            ELSE 'gpu'
        END AS side,
        coalesce(k.class, '*') AS class
    FROM chosen AS c
    LEFT JOIN events AS a ON a.trace_id = c.trace_id AND a.event_id = c.shown_event_id
    LEFT JOIN _clip AS g ON g.window_no = c.window_no AND g.event_id = c.shown_event_id AND g.side = 'gpu'
    LEFT JOIN _kernel_class AS k ON k.profile = c.profile AND k.cat = a.cat AND k.name = a.name
),
-- Every edge type has a rule for every side: the most special rule holds.
ruled AS (
    SELECT s.trace_id, s.window_id, s.seq, min(b.rule_rank) AS rule_rank
    FROM sided AS s
    JOIN bound_by AS b
        ON b.profile = s.profile AND b.edge_type = s.edge_type
        AND (b.side = '*' OR b.side = s.side) AND (b.class = '*' OR b.class = s.class)
    GROUP BY s.trace_id, s.window_id, s.seq
)
SELECT
    s.trace_id,  -- The trace.
    s.window_id,  -- The window.
    s.seq,  -- Place on the path, from 1.
    s.edge_id,  -- The edge in critical_path_edges.
    s.src_node_id // 2 AS src_event_id,  -- Event of the source node.
    s.src_node_id % 2 = 0 AS src_is_start,  -- The source is the event's start.
    s.dst_node_id // 2 AS dst_event_id,  -- Event of the destination node.
    s.dst_node_id % 2 = 0 AS dst_is_start,  -- The destination is the event's start.
    s.edge_type,  -- Type of the edge.
    s.weight_ns,  -- Weight as measured, ns.
    s.path_weight_ns,  -- Weight as used on the path, ns.
    CASE WHEN s.summary_of_measured THEN s.weight_ns ELSE s.path_weight_ns END AS duration_ns,  -- The edge's time in the summary, ns: measured in HTA, used in default.
    s.attributed_event_id,  -- Event whose time it is; NULL for edges without time and for launch delays.
    coalesce(s.shown_event_id, s.dst_node_id // 2) AS event_id,  -- The event to show for this edge.
    s.name,  -- Name of the attributed event; of the launched kernel for a launch delay; NULL for edges without time.
    s.cat,  -- Its category.
    coalesce(b.bound_by, '') AS bound_by  -- cpu_bound, gpu_compute_bound, … by rules/bound_by.csv.
FROM sided AS s
JOIN ruled AS r ON r.trace_id = s.trace_id AND r.window_id = s.window_id AND r.seq = s.seq
JOIN bound_by AS b
    ON b.profile = s.profile AND b.edge_type = s.edge_type AND b.rule_rank = r.rule_rank
    AND (b.side = '*' OR b.side = s.side) AND (b.class = '*' OR b.class = s.class)
