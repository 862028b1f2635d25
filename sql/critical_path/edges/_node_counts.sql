-- One row: a window with edges, and the number of nodes of its graph.
-- How: every event of the graph has two nodes, and an edge leads to its end node. If the path covers the window, an
-- edge leads to every node except the first.
SELECT
    e.window_no,  -- The window.
    CASE
        WHEN max(CASE WHEN w.covers_window THEN 1 ELSE 0 END) = 1 THEN 1 + count(DISTINCT e.dst_node_id)
        ELSE 2 * count(DISTINCT CASE WHEN e.dst_node_id % 2 = 1 THEN e.dst_node_id END)
    END AS n_nodes  -- Number of nodes of the graph.
FROM _edges AS e
JOIN critical_path_windows AS w ON w.window_no = e.window_no
GROUP BY e.window_no
HAVING count(*) FILTER (WHERE e.dst_node_id % 2 = 1) > 0
