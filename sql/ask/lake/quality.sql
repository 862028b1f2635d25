-- Question: What was repaired, dropped or missing in the traces?
-- Reading: One row per finding of a job, worst first. Read the findings before any number of the trace. `detail` of
-- table `quality` explains what a finding changes.
SELECT
    q.severity, q.check_name, coalesce(t.job, t.file) AS job, sum(q.n) AS n, count(DISTINCT q.trace_id) AS n_traces,
    min(q.detail) AS example
FROM quality AS q
JOIN traces AS t ON q.trace_id = t.trace_id
GROUP BY q.severity, q.check_name, coalesce(t.job, t.file), coalesce(t.job, t.trace_id)
ORDER BY
    CASE q.severity WHEN 'error' THEN 1 WHEN 'warning' THEN 2 WHEN 'info' THEN 3 END, n_traces DESC, q.check_name, job,
    coalesce(t.job, t.trace_id)
