-- Question: What was repaired, dropped or missing in each trace?
-- Reading: One row per trace and finding, worst first.
SELECT t.rank, x.check_name, x.severity, x.n, x.detail
FROM quality AS x
JOIN traces AS t ON x.trace_id = t.trace_id
ORDER BY CASE x.severity WHEN 'error' THEN 0 WHEN 'warning' THEN 1 ELSE 2 END, x.check_name, t.rank, x.detail
