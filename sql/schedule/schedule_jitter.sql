-- One row: a task of a run, with the percentiles of its duration and the share of its jitter that reached the
-- iterations.
-- How: nearest-rank percentiles. The jitter of iterations is the jitter of the distances between their ends.
-- scope: lake
WITH timed AS (
    SELECT
        run_id, task, iteration,
        coalesce(device_end_ns, end_ns) - coalesce(device_start_ns, start_ns) AS task_ns,
        coalesce(device_end_ns, end_ns) AS finish_ns
    FROM schedule_task_timings
),
ranked AS (
    SELECT
        run_id, task, task_ns,
        row_number() OVER (PARTITION BY run_id, task ORDER BY task_ns) AS ordinal,
        count(*) OVER (PARTITION BY run_id, task) AS n
    FROM timed
    WHERE task_ns IS NOT NULL
),
tasks AS (
    SELECT
        run_id, task, max(n) AS n,
        max(CASE WHEN ordinal = (n + 1) // 2 THEN task_ns END) AS p50_ns,
        max(CASE WHEN ordinal = (n * 9 + 9) // 10 THEN task_ns END) AS p90_ns,
        max(CASE WHEN ordinal = (n * 99 + 99) // 100 THEN task_ns END) AS p99_ns
    FROM ranked
    GROUP BY run_id, task
),
ends AS (
    SELECT run_id, iteration, max(finish_ns) AS finish_ns
    FROM timed
    GROUP BY run_id, iteration
),
periods AS (
    SELECT run_id, finish_ns - lag(finish_ns) OVER (PARTITION BY run_id ORDER BY iteration) AS period_ns FROM ends
),
ranked_periods AS (
    SELECT
        run_id, period_ns,
        row_number() OVER (PARTITION BY run_id ORDER BY period_ns) AS ordinal,
        count(*) OVER (PARTITION BY run_id) AS n
    FROM periods
    WHERE period_ns IS NOT NULL
),
iterations AS (
    SELECT
        run_id,
        max(CASE WHEN ordinal = (n + 1) // 2 THEN period_ns END) AS p50_ns,
        max(CASE WHEN ordinal = (n * 9 + 9) // 10 THEN period_ns END) AS p90_ns
    FROM ranked_periods
    GROUP BY run_id
)
SELECT
    t.run_id,  -- The run.
    t.task,  -- The task.
    t.n,  -- Iterations in which the task has a duration.
    t.p50_ns,  -- Median duration, ns.
    t.p90_ns,  -- 90th percentile, ns.
    t.p99_ns,  -- 99th percentile, ns.
    i.p50_ns AS iteration_p50_ns,  -- Median distance between the ends of iterations, ns.
    i.p90_ns AS iteration_p90_ns,  -- 90th percentile of that distance, ns.
    -- Spread of the iterations divided by the spread of the task. Above 1, the jitter comes from elsewhere. NULL for a
    -- task without spread.
    1e0 * (i.p90_ns - i.p50_ns) / nullif(t.p90_ns - t.p50_ns, 0) AS reaches_iteration
FROM tasks AS t
LEFT JOIN iterations AS i ON i.run_id = t.run_id
