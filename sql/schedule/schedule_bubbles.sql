-- One row: a stream of a run and a cause of its stalls, with their duration.
-- How: sums of the stalls before the stream's tasks. The cause is stall_cause without the iteration.
-- scope: lake
WITH planned AS (
    -- DISTINCT, because older lakes contain duplicate rows of a plan's tasks.
    SELECT DISTINCT plan_hash, task, stream FROM schedule_plans
)
SELECT
    t.run_id,  -- The run.
    -- The stream; a serial run has one, default.
    CASE WHEN r.engine = 'serial' THEN 'default' ELSE p.stream END AS stream,
    regexp_replace(t.stall_cause, ':? i[0-9]+$', '') AS cause,  -- Awaited task or resource, without the iteration.
    count(*) AS n,  -- Number of stalls.
    CAST(sum(t.stall_ns) AS BIGINT) AS stall_ns,  -- Summed stalls, ns over all measured iterations.
    1e0 * sum(t.stall_ns) / nullif(max(r.iterations), 0) AS stall_per_iteration_ns  -- Summed stalls, ns per iteration.
FROM schedule_task_timings AS t
JOIN schedule_runs AS r ON r.run_id = t.run_id
JOIN planned AS p ON p.plan_hash = r.plan_hash AND p.task = t.task
WHERE t.stall_ns > 0
GROUP BY
    t.run_id, CASE WHEN r.engine = 'serial' THEN 'default' ELSE p.stream END,
    regexp_replace(t.stall_cause, ':? i[0-9]+$', '')
