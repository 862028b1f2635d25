-- One row: a type of edge in the graph of a window.
-- How: a table of its own, so that it is made beside the longest path and nobody needs _edges after that.
SELECT
    window_no,  -- The window.
    edge_code,  -- Type of the edge, in edge_types.
    count(*) AS n_edges,  -- Edges of that type.
    sum(weight_ns) AS weight_ns  -- Their weights as measured, ns.
FROM _edges
GROUP BY window_no, edge_code
