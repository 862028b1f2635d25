-- One row: an owner of time on the critical path of a window: an operator, a call, GPU work, an annotation or a Python
-- function around host time outside operators, a thread, or the delays, gaps and waits of a stream.
-- How: the path's edges summed by owner. In a window with a covering path, the owners of a window have all of its time.
-- check: unique(trace_id, window_id, owner, owner_cat, bound_by)
SELECT
    trace_id,  -- The trace.
    window_id,  -- The window.
    owner,  -- Who owns the time, as in critical_path.
    owner_cat,  -- Its category: kernel, cpu_op, user_annotation, python_function, …; NULL where it is no event.
    bound_by,  -- What bounds that time.
    count(*) AS n_edges,  -- Edges of the path.
    TRY_CAST(sum(duration_ns) AS BIGINT) AS duration_ns  -- Their time on the path, ns.
FROM critical_path
WHERE duration_ns <> 0
GROUP BY trace_id, window_id, owner, owner_cat, bound_by
