-- One row: how long a stream of a run stalled for one cause.
-- How: the summed stalls before its tasks; the cause is what was waited for, without the iteration.
-- scope: lake
SELECT
    t.run_id,  -- The run.
    p.stream,  -- The stream.
    rtrim(split_part(t.stall_cause, ' i', 1), ':') AS cause,  -- What was waited for, in any iteration.
    count(*) AS n,  -- How often.
    CAST(sum(t.stall_ns) AS BIGINT) AS stall_ns,  -- How long, ns over all measured iterations.
    1e0 * sum(t.stall_ns) / nullif(max(r.iterations), 0) AS stall_per_iteration_ns  -- How long, ns per iteration.
FROM schedule_task_timings AS t
JOIN schedule_runs AS r ON r.run_id = t.run_id
JOIN schedule_plans AS p ON p.plan_hash = r.plan_hash AND p.task = t.task
WHERE t.stall_ns > 0
GROUP BY t.run_id, p.stream, rtrim(split_part(t.stall_cause, ' i', 1), ':')
