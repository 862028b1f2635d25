-- One row: a task of a run with its predicted and its measured stall, and its exposed time.
-- How: measured stalls come from the middle half of the run, like the period in schedule_periods, because a stream
-- waits longer while the pipeline fills, and less while it drains. Predicted stalls apply to the steady state.
-- scope: lake
WITH iterations AS (
    SELECT DISTINCT run_id, iteration FROM schedule_task_timings
),
placed AS (
    SELECT
        run_id, iteration,
        row_number() OVER (PARTITION BY run_id ORDER BY iteration) AS ordinal,
        count(*) OVER (PARTITION BY run_id) AS n
    FROM iterations
),
measured AS (
    SELECT t.run_id, t.task, avg(t.stall_ns) AS stall_ns, count(t.stall_ns) AS n
    FROM schedule_task_timings AS t
    JOIN placed AS i ON i.run_id = t.run_id AND i.iteration = t.iteration
    WHERE i.ordinal > i.n // 4 AND i.ordinal <= i.n - i.n // 4
    GROUP BY t.run_id, t.task
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
