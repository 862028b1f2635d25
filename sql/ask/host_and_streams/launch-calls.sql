-- Question: Which launch calls take the host's time?
-- Reading: One row per rank and call, with the time spent in the calls. `median_delay_ns` is the time from the end of a
-- call to the start of its first work; `launch-delays` explains how to read it.
-- Words: launch bound, host bound
SELECT
    coalesce(t.job, t.file) AS job, t.rank, l.name, count(*) AS n, CAST(sum(l.duration_ns) AS BIGINT) AS duration_ns,
    median(l.duration_ns) AS median_ns, median(l.launch_delay_ns) AS median_delay_ns, t.trace_id
FROM launches AS l
JOIN traces AS t ON l.trace_id = t.trace_id
GROUP BY t.trace_id, coalesce(t.job, t.file), t.rank, l.name
ORDER BY n DESC, l.name, job, t.rank, t.trace_id
