-- One row: a share of the critical path of a window by what it is bound by.
-- How: sum of the path's weights by bound_by, in percent of their sum; duration_ns of critical_path.
-- check: unique(trace_id, window_id, bound_by)
WITH summed AS (
    SELECT
        c.trace_id, c.window_id, w.profile, w.end_ns - w.start_ns AS window_ns, c.bound_by, count(*) AS n_edges,
        sum(c.duration_ns) AS duration_ns
    FROM critical_path AS c
    JOIN critical_path_windows AS w ON w.trace_id = c.trace_id AND w.window_id = c.window_id
    GROUP BY c.trace_id, c.window_id, w.profile, w.end_ns - w.start_ns, c.bound_by
)
SELECT
    trace_id,  -- The trace.
    window_id,  -- The window.
    bound_by,  -- What the edges are bound by.
    profile,  -- hta or default.
    CAST(n_edges AS BIGINT) AS n_edges,  -- Edges on the path.
    CAST(duration_ns AS BIGINT) AS duration_ns,  -- Their time, ns.
    100.0 * duration_ns / nullif(sum(duration_ns) OVER (PARTITION BY trace_id, window_id), 0) AS percent,  -- Their time in percent of the path's length; NULL for a path of length 0.
    100.0 * duration_ns / nullif(window_ns, 0) AS percent_of_window  -- Their time in percent of the window: what the path covers of the wall clock.
FROM summed
