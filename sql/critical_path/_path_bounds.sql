-- One row: an edge of the longest path of a window, with what it is bound by; columns are numbers where rows are many.
-- How: the attributed event's side and class choose the rule in _bound_by; rules are matched once per kind of edge.
WITH gpu_work AS (
    SELECT c.window_no, c.event_id, k.class
    FROM _clip AS c
    JOIN critical_path_windows AS w ON w.window_no = c.window_no
    JOIN events AS e ON e.trace_id = w.trace_id AND e.event_id = c.event_id
    JOIN _kernel_class AS k ON k.profile = w.profile AND k.cat = e.cat AND k.name = e.name
    WHERE c.side = 'gpu'
),
on_path AS (
    SELECT
        w.profile, l.seq, e.window_no, e.edge_id, e.src_node_id, e.dst_node_id, e.edge_code, e.weight_ns,
        e.path_weight_ns, e.attributed_event_id, e.waits_for_earlier_work, e.is_inferred,
        CASE
            WHEN e.waits_for_earlier_work THEN 'outside'
            WHEN e.attributed_event_id IS NULL THEN '*'
            WHEN g.event_id IS NULL THEN 'cpu'
            ELSE 'gpu'
        END AS side,
        coalesce(g.class, '*') AS class
    FROM longest_path AS l
    JOIN critical_path_windows AS w ON w.trace_id = l.trace_id AND w.window_id = l.window_id
    JOIN _edges AS e ON e.window_no = w.window_no AND e.edge_id = l.edge_id
    LEFT JOIN gpu_work AS g ON g.window_no = e.window_no AND g.event_id = e.attributed_event_id
),
profiles AS (
    SELECT DISTINCT profile FROM bound_by
),
sides AS (
    SELECT '*' AS side
    UNION ALL
    SELECT 'cpu'
    UNION ALL
    SELECT 'gpu'
    UNION ALL
    SELECT 'outside'
),
classes AS (
    SELECT '*' AS class
    UNION ALL
    SELECT DISTINCT class FROM kernel_classes
),
kinds AS (
    SELECT p.profile, t.edge_code, s.side, c.class
    FROM profiles AS p
    CROSS JOIN edge_types AS t
    CROSS JOIN sides AS s
    CROSS JOIN classes AS c
),
ruled AS (
    SELECT
        k.profile, k.edge_code, k.side, k.class, coalesce(b.bound_by, '') AS bound_by,
        row_number() OVER (PARTITION BY k.profile, k.edge_code, k.side, k.class ORDER BY b.rule_rank) AS choice
    FROM kinds AS k
    JOIN edge_types AS t ON t.edge_code = k.edge_code
    JOIN _bound_by AS b
        ON b.profile = k.profile AND b.edge_type = t.edge_type
            AND (b.side = '*' OR b.side = k.side) AND (b.class = '*' OR b.class = k.class)
)
SELECT
    o.window_no,  -- The window.
    o.seq,  -- Place on the path, from 1.
    o.edge_id,  -- The edge.
    o.src_node_id,  -- Source node.
    o.dst_node_id,  -- Destination node.
    o.edge_code,  -- Type of the edge.
    o.weight_ns,  -- Weight as measured, ns.
    o.path_weight_ns,  -- Weight as used, ns.
    -- The edge's time in the summary, ns.
    CASE WHEN p.summary_of_measured THEN o.weight_ns ELSE o.path_weight_ns END AS duration_ns,
    o.attributed_event_id,  -- Event whose time it is.
    o.waits_for_earlier_work,  -- Most of its time was a wait for GPU work from outside the window.
    o.is_inferred,  -- A wait that no cuda_sync row shows.
    r.bound_by  -- What it is bound by.
FROM on_path AS o
JOIN critical_path_windows AS w ON w.window_no = o.window_no
JOIN _profiles AS p ON p.trace_profile_id = w.trace_profile_id
JOIN ruled AS r
    ON r.profile = o.profile AND r.edge_code = o.edge_code AND r.side = o.side AND r.class = o.class AND r.choice = 1
