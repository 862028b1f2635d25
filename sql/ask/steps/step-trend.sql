-- Question: Do steps get slower from one capture to the next?
-- Reading: One row per capture of a job, oldest first, with means over its ranks, devices and steps. A trace
-- without a job has its own row, named by its file. `tracelake regressions` tests whether a change is more than noise.
SELECT
    coalesce(t.job, t.file) AS job, t.capture_id, count(DISTINCT t.rank) AS n_ranks,
    count(DISTINCT s.trace_id || ' ' || CAST(s.step AS VARCHAR)) AS n_steps,
    round(avg(s.duration_ns) / 1e6, 2) AS step_ms,
    round(100 * sum(s.busy_ns) / nullif(sum(s.duration_ns) FILTER (WHERE s.busy_ns IS NOT NULL), 0), 1) AS busy_percent
FROM step_times AS s
JOIN traces AS t ON s.trace_id = t.trace_id
GROUP BY coalesce(t.job, t.file), coalesce(t.job, t.trace_id), t.capture_id
ORDER BY job, min(t.trace_start_ns), t.capture_id, coalesce(t.job, t.trace_id)
