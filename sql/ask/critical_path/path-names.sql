-- Question: Which kernels and operators are on the critical path?
-- Reading: Only events on the path delay the end; a long kernel that runs concurrently does not. `percent` is relative
-- to the paths of the job. The rest is time of no event, such as gaps on the host (`path-bound-by`).
WITH lengths AS (
    SELECT coalesce(t.job, t.trace_id) AS owner, sum(s.duration_ns) AS duration_ns
    FROM critical_path_summary AS s
    JOIN traces AS t ON s.trace_id = t.trace_id
    WHERE s.window_id = 'full'
    GROUP BY coalesce(t.job, t.trace_id)
)
SELECT
    coalesce(t.job, t.file) AS job, n.name, n.cat, sum(n.n_events) AS n, count(DISTINCT n.trace_id) AS n_traces,
    round(sum(n.duration_ns) / 1e6, 2) AS path_ms,
    round(100 * sum(n.duration_ns) / nullif(max(l.duration_ns), 0), 1) AS percent
FROM critical_path_by_name AS n
JOIN traces AS t ON n.trace_id = t.trace_id
JOIN lengths AS l ON l.owner = coalesce(t.job, t.trace_id)
WHERE n.window_id = 'full'
GROUP BY coalesce(t.job, t.file), coalesce(t.job, t.trace_id), n.name, n.cat
ORDER BY sum(n.duration_ns) DESC, n.name, n.cat, job, coalesce(t.job, t.trace_id)
