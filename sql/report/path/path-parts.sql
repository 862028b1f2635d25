-- Question: Which names take the most time on the path?
-- Reading: One row per name and category.
SELECT x.*
FROM critical_path_by_name AS x
JOIN traces AS t ON x.trace_id = t.trace_id
WHERE x.window_id = 'full'
ORDER BY x.duration_ns DESC, x.name, x.cat
