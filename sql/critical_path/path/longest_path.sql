-- One row: an edge of the longest path of a window, in path order.
-- How: join _longest_path to the names of its trace and window.
-- check: unique(trace_id, window_id, seq)
SELECT
    w.trace_id,  -- The trace.
    w.window_id,  -- The window.
    l.seq,  -- Position on the path, from 1.
    l.edge_id  -- The edge in critical_path_edges.
FROM _longest_path AS l
JOIN critical_path_windows AS w ON w.window_no = l.window_no
