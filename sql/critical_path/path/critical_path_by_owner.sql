-- One row: an owner of time on the critical path of a window: an operator, a call, GPU work, an annotation or a Python
-- function around host time outside operators, a thread, or the delays, gaps and waits of a stream.
-- How: sum the path's edges by owner. In a window with a covering path, the times of the owners add up to the length of
-- the path.
-- check: unique(trace_id, window_id, owner, owner_cat, bound_by)
SELECT
    trace_id,  -- The trace.
    window_id,  -- The window.
    owner,  -- Owner of the time, as in critical_path.
    owner_cat,  -- Its category: kernel, cpu_op, user_annotation, …; NULL if the owner is not an event.
    bound_by,  -- Bound of that time, as in critical_path.
    count(*) AS n_edges,  -- Number of edges on the path.
    TRY_CAST(sum(duration_ns) AS BIGINT) AS duration_ns  -- Time of these edges on the path, ns.
FROM critical_path
WHERE duration_ns <> 0
GROUP BY trace_id, window_id, owner, owner_cat, bound_by
