-- Question: What must be known before the critical path is believed?
-- Reading: Inferred and missing events of the trace, and how much of the path they affect.
SELECT
    coalesce(t.job, t.file) AS job, t.rank, c.severity, c.caveat, c.n, round(c.time_ns / 1e6, 2) AS time_ms, c.detail
FROM critical_path_caveats AS c
JOIN traces AS t ON c.trace_id = t.trace_id
WHERE c.window_id = 'full'
ORDER BY
    CASE c.severity WHEN 'error' THEN 1 WHEN 'warning' THEN 2 WHEN 'info' THEN 3 END, c.time_ns DESC NULLS LAST, job,
    t.rank, c.caveat, t.trace_id
