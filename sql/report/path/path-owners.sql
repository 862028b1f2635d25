-- Question: Which operators and calls does the time on the path belong to?
-- Reading: One row per owner and bound, most time first.
SELECT x.owner, coalesce(x.owner_cat, 'gap') AS owner_cat, x.bound_by, x.duration_ns
FROM critical_path_by_owner AS x
JOIN traces AS t ON x.trace_id = t.trace_id
WHERE x.window_id = 'full'
ORDER BY x.duration_ns DESC, x.owner, owner_cat, x.bound_by
