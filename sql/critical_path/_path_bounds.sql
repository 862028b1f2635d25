-- One row: an edge of the longest path of a window, with what it is bound by; columns are numbers where rows are many.
-- How: the attributed event's side and class choose the rule in _path_rules.
WITH on_path AS (
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
    FROM _longest_path AS l
    JOIN critical_path_windows AS w ON w.window_no = l.window_no
    JOIN _edges AS e ON e.window_no = l.window_no AND e.edge_id = l.edge_id
    LEFT JOIN _gpu_classes AS g ON g.window_no = e.window_no AND g.event_id = e.attributed_event_id
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
JOIN _path_rules AS r
    ON r.profile = o.profile AND r.edge_code = o.edge_code AND r.side = o.side AND r.class = o.class
