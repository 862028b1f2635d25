-- Question: What limits what is known about the ranks together?
-- Reading: One row per finding of the capture, worst first.
SELECT x.check_name, x.severity, x.n, x.detail
FROM capture_quality AS x
JOIN captures AS c ON x.capture_id = c.capture_id
ORDER BY CASE x.severity WHEN 'error' THEN 0 WHEN 'warning' THEN 1 ELSE 2 END, x.check_name, x.detail
