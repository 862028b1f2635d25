-- One row: an edge of the dependency graph of a window, and what it is bound by where a path runs over it.
-- How: the attributed event's side and class choose the rule in _path_rules.
SELECT
    e.window_no,  -- The window.
    e.edge_id,  -- The edge.
    r.bound_by  -- What it is bound by.
FROM _edges AS e
JOIN critical_path_windows AS w ON w.window_no = e.window_no
LEFT JOIN _gpu_classes AS g ON g.window_no = e.window_no AND g.event_id = e.attributed_event_id
JOIN _path_rules AS r
    ON r.profile = w.profile AND r.edge_code = e.edge_code AND r.class = coalesce(g.class, '*')
        AND r.side = CASE
            WHEN e.waits_for_earlier_work THEN 'outside'
            WHEN e.attributed_event_id IS NULL THEN '*'
            WHEN g.event_id IS NULL THEN 'cpu'
            ELSE 'gpu'
        END
