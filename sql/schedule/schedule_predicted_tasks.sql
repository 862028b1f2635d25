-- One row: a task of a run with its predicted and its measured stall, and its exposed time.
-- scope: lake
WITH measured AS (
    SELECT run_id, task, avg(stall_ns) AS stall_ns, count(stall_ns) AS n
    FROM schedule_task_timings
    GROUP BY run_id, task
)
SELECT
    p.run_id,  -- The run.
    p.task,  -- The task.
    p.duration_ns,  -- Duration of the task in the simulation, ns.
    p.stall_ns AS predicted_stall_ns,  -- Predicted stall of its stream before the task, ns per iteration.
    -- Measured stall, ns per iteration; NULL where not measured.
    CASE WHEN m.n > 0 THEN m.stall_ns END AS measured_stall_ns,
    m.stall_ns - p.stall_ns AS difference_ns,  -- Measured minus predicted, ns.
    x.exposed_ns  -- Time that an iteration saves without the task, ns; NULL where not measured.
FROM schedule_predictions AS p
LEFT JOIN measured AS m ON m.run_id = p.run_id AND m.task = p.task
LEFT JOIN schedule_exposed_times AS x ON x.run_id = p.run_id AND x.task = p.task
WHERE p.task IS NOT NULL
