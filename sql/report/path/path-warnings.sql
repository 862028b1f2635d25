-- Question: Which caveats of the critical paths matter?
-- Reading: One row per trace and caveat, excluding caveats of severity info.
SELECT t.rank, t.path, x.trace_id, x.caveat, x.detail
FROM critical_path_caveats AS x
JOIN traces AS t ON x.trace_id = t.trace_id
WHERE x.window_id = 'full' AND x.severity <> 'info'
ORDER BY t.rank NULLS LAST, t.path, x.time_ns DESC NULLS LAST, x.caveat
