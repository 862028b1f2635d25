-- Question: What bounds the critical path of each trace?
-- Reading: One row per trace and bound, traces sorted by rank.
SELECT t.rank, t.path, x.*
FROM critical_path_summary AS x
JOIN traces AS t ON x.trace_id = t.trace_id
WHERE x.window_id = 'full'
ORDER BY t.rank NULLS LAST, t.path, x.duration_ns DESC, x.bound_by
