-- One row: how long a stream of a run stood still for one cause.
-- How: the stalls before its tasks, added; the cause is the kind of wait without the iteration it names.
-- scope: lake
SELECT
    t.run_id,  -- The run.
    p.stream,  -- The stream.
    rtrim(split_part(t.stall_cause, ' i', 1), ':') AS cause,  -- What was waited for, of any iteration.
    count(*) AS n,  -- How often.
    CAST(sum(t.stall_ns) AS BIGINT) AS stall_ns,  -- How long, ns over all measured iterations.
    1.0 * sum(t.stall_ns) / nullif(max(r.iterations), 0) AS stall_per_iteration_ns  -- How long, ns an iteration.
FROM schedule_task_timings AS t
JOIN schedule_runs AS r ON r.run_id = t.run_id
JOIN schedule_plans AS p ON p.plan_hash = r.plan_hash AND p.task = t.task
WHERE t.stall_ns > 0
GROUP BY t.run_id, p.stream, rtrim(split_part(t.stall_cause, ' i', 1), ':')
