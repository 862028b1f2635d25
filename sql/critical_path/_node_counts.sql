-- One row: a window with edges, and the nodes of its graph.
-- How: every event of the graph has two nodes, and an edge leads to its end.
SELECT
    window_no,  -- The window.
    2 * count(DISTINCT dst_node_id) AS n_nodes  -- Nodes of the graph.
FROM _edges
WHERE dst_node_id % 2 = 1
GROUP BY window_no
