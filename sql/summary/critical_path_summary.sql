-- One row: a bound and its share of a window's critical path.
-- How: sum the path's times by bound_by, in percent of the path and of the window.
-- check: unique(trace_id, window_id, bound_by)
WITH summed AS (
    SELECT window_no, bound_by, count(*) AS n_edges, sum(duration_ns) AS duration_ns
    FROM _path_bounds
    GROUP BY window_no, bound_by
)
SELECT
    w.trace_id,  -- The trace.
    w.window_id,  -- The window.
    s.bound_by,  -- Bound of the edges.
    w.profile,  -- hta or default.
    CAST(s.n_edges AS BIGINT) AS n_edges,  -- Number of edges on the path.
    TRY_CAST(s.duration_ns AS BIGINT) AS duration_ns,  -- Time of these edges on the path, ns.
    -- Time of these edges in percent of the path's length; NULL if the length is 0.
    100e0 * s.duration_ns / nullif(sum(s.duration_ns) OVER (PARTITION BY s.window_no), 0) AS percent,
    -- Time of these edges in percent of the window; NULL if the window's length is 0.
    100e0 * s.duration_ns / nullif(w.path_end_ns - w.path_start_ns, 0) AS percent_of_window
FROM summed AS s
JOIN critical_path_windows AS w ON w.window_no = s.window_no
