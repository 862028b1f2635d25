-- One row: a run, checked against its plan and against the previous run with the same plan, engine, size, depth, jitter
-- and number of iterations on the same device of the same host. Either both runs have a trace, or neither has.
-- Simulated times do not depend on the host.
-- How: noise is the distance from the median to the 90th percentile of the iterations, divided by the median, for the
-- noisier of the two runs.
-- scope: lake
WITH counted AS (
    SELECT run_id, count(*) AS n_timings
    FROM schedule_task_timings
    GROUP BY run_id
),
planned AS (
    -- DISTINCT, because older lakes contain duplicate rows of a plan's tasks.
    SELECT plan_hash, count(DISTINCT task) AS n_tasks
    FROM schedule_plans
    GROUP BY plan_hash
),
spread AS (
    SELECT run_id, max(1e0 * (iteration_p90_ns - iteration_p50_ns) / nullif(iteration_p50_ns, 0)) AS noise
    FROM schedule_jitter
    GROUP BY run_id
),
measured AS (
    SELECT
        r.run_id, r.iterations, r.started_at, p.plan, p.engine, p.device_name, p.efficiency, s.noise,
        coalesce(c.n_timings, 0) AS n_timings, n.n_tasks,
        lag(r.run_id) OVER earlier AS last_run_id,
        lag(p.efficiency) OVER earlier AS last_efficiency,
        lag(s.noise) OVER earlier AS last_noise
    FROM schedule_runs AS r
    JOIN schedule_periods AS p ON p.run_id = r.run_id
    LEFT JOIN planned AS n ON n.plan_hash = r.plan_hash
    LEFT JOIN counted AS c ON c.run_id = r.run_id
    LEFT JOIN spread AS s ON s.run_id = r.run_id
    WINDOW earlier AS (
        PARTITION BY
            r.plan_hash, r.engine, r.device, r.device_name, CASE WHEN r.device <> 'simulated' THEN r.host END,
            r.size, r.jitter_ns, r.jitter_task, r.max_depth, r.iterations, r.trace_file IS NULL
        ORDER BY r.started_at, r.run_id
    )
)
SELECT
    run_id,  -- The run.
    plan,  -- Plan of the run.
    engine,  -- serial, sw or dataflow.
    device_name,  -- Device of the run.
    iterations * n_tasks - n_timings AS n_lost,  -- Task iterations without timings; NULL where the plan is unknown.
    efficiency,  -- Ideal period divided by measured period.
    noise,  -- Spread of its iterations divided by their median.
    last_run_id,  -- The previous run; NULL for the first.
    last_efficiency,  -- Efficiency of the previous run.
    last_noise,  -- Noise of the previous run.
    -- True if the run is less efficient than the previous run by more than the noise.
    coalesce(
        efficiency < last_efficiency * (1 - greatest(coalesce(noise, 0), coalesce(last_noise, 0))), FALSE
    ) AS is_worse
FROM measured
