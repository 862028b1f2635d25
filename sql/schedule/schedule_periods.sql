-- One row: a run with its measured period, its ideal period and the bound of that ideal, and its predicted period.
-- How: the period is the mean distance between the ends of iterations in the middle half of the run. The ideal is the
-- largest sum of median task times on one stream. If it is longer, the ideal is such a sum on a cycle of dependencies,
-- divided by the number of iterations that the cycle spans. A globally ordered task (a collective) counts with its
-- shortest time, because the rest is waiting for other ranks. The time between a GPU's events includes the gaps in
-- which the host is late with the next kernel. So a shorter time without gaps counts instead: the duration that the
-- run's simulation was given, or the GPU work that the task launched in the run's trace.
-- scope: lake
WITH timed AS (
    -- Device time where the device has events, else host time.
    SELECT
        t.run_id, t.task, t.iteration,
        coalesce(t.device_start_ns, t.start_ns) AS begin_ns, coalesce(t.device_end_ns, t.end_ns) AS finish_ns
    FROM schedule_task_timings AS t
),
iterations AS (
    SELECT run_id, iteration, max(finish_ns) AS finish_ns
    FROM timed
    GROUP BY run_id, iteration
),
placed AS (
    SELECT
        run_id, finish_ns,
        row_number() OVER (PARTITION BY run_id ORDER BY iteration) AS ordinal,
        count(*) OVER (PARTITION BY run_id) AS n
    FROM iterations
),
middle AS (
    SELECT run_id, min(finish_ns) AS first_ns, max(finish_ns) AS last_ns, count(*) - 1 AS steps
    FROM placed
    WHERE ordinal > n // 4 AND ordinal <= n - n // 4
    GROUP BY run_id
),
ranked AS (
    SELECT
        run_id, task, finish_ns - begin_ns AS task_ns,
        row_number() OVER (PARTITION BY run_id, task ORDER BY finish_ns - begin_ns) AS ordinal,
        count(*) OVER (PARTITION BY run_id, task) AS n
    FROM timed
    WHERE begin_ns IS NOT NULL AND finish_ns IS NOT NULL
),
planned AS (
    -- DISTINCT, because older lakes contain duplicate rows of a plan's tasks.
    SELECT DISTINCT plan_hash, task, stream, globally_ordered FROM schedule_plans
),
-- GPU work of the tasks in the runs' traces; of a trace without GPU work nothing is known.
launched AS (
    SELECT o.trace_id, o.task, sum(k.duration_ns) AS kernel_ns
    FROM schedule_task_events AS o
    JOIN kernels AS k ON k.trace_id = o.trace_id AND k.launch_event_id = o.event_id
    GROUP BY o.trace_id, o.task
),
traced AS (
    SELECT s.run_id, s.task, coalesce(max(l.kernel_ns), 0) // count(*) AS task_ns
    FROM schedule_spans AS s
    LEFT JOIN launched AS l ON l.trace_id = s.trace_id AND l.task = s.task
    WHERE s.trace_id IN (SELECT g.trace_id FROM launched AS g)
    GROUP BY s.run_id, s.task
),
worked AS (
    SELECT
        r.run_id, p.stream,
        least(m.task_ns, coalesce(w.duration_ns, m.task_ns), coalesce(t.task_ns, m.task_ns)) AS task_ns
    FROM schedule_runs AS r
    JOIN planned AS p ON p.plan_hash = r.plan_hash
    JOIN ranked AS m
        ON m.run_id = r.run_id AND m.task = p.task
            AND m.ordinal = CASE WHEN p.globally_ordered THEN 1 ELSE (m.n + 1) // 2 END
    LEFT JOIN schedule_predictions AS w ON w.run_id = r.run_id AND w.task = p.task
    LEFT JOIN traced AS t ON t.run_id = r.run_id AND t.task = p.task
),
streams AS (
    SELECT run_id, stream, sum(task_ns) AS busy_ns
    FROM worked
    GROUP BY run_id, stream
),
busiest AS (
    SELECT
        run_id, stream, busy_ns,
        sum(busy_ns) OVER (PARTITION BY run_id) AS serial_ns,
        row_number() OVER (PARTITION BY run_id ORDER BY busy_ns DESC, stream) AS ordinal
    FROM streams
),
ideal AS (
    SELECT
        b.run_id, b.serial_ns, greatest(b.busy_ns, coalesce(w.cycle_ns, 0)) AS ideal_ns,
        CASE WHEN w.cycle_ns > b.busy_ns THEN 'cycle ' || w.cycle ELSE b.stream END AS bound_by
    FROM busiest AS b
    LEFT JOIN schedule_predictions AS w ON w.run_id = b.run_id AND w.task IS NULL
    WHERE b.ordinal = 1
),
named AS (
    SELECT DISTINCT plan_hash, plan FROM schedule_plans
)
SELECT
    r.run_id,  -- The run.
    n.plan,  -- Name of the plan.
    r.plan_hash,  -- Hash of the plan.
    r.engine,  -- serial, sw or dataflow.
    r.device,  -- Device of the run.
    r.device_name,  -- Name of that device.
    r.size,  -- Size of the workload.
    r.jitter_ns,  -- Mean of the delay added to one task, ns.
    -- Measured period, ns; NULL for runs of one iteration.
    CAST(round(1e0 * (m.last_ns - m.first_ns) / nullif(m.steps, 0)) AS BIGINT) AS period_ns,
    -- Work on the busiest stream, or the longest cycle of dependencies, ns per iteration. An upper bound in a GPU's
    -- runs of version 0.2 and older without a trace, which count the gaps.
    CAST(i.ideal_ns AS BIGINT) AS ideal_ns,
    i.bound_by,  -- Bound of ideal_ns: the stream, or the tasks of the cycle.
    CAST(i.serial_ns AS BIGINT) AS work_ns,  -- Work of all tasks, ns per iteration, likewise.
    -- Ideal period divided by measured period.
    i.ideal_ns / nullif(1e0 * (m.last_ns - m.first_ns) / nullif(m.steps, 0), 0) AS efficiency,
    w.period_ns AS predicted_period_ns  -- Period predicted by the simulation, ns; NULL without a simulation.
FROM schedule_runs AS r
LEFT JOIN named AS n ON n.plan_hash = r.plan_hash
LEFT JOIN middle AS m ON m.run_id = r.run_id
LEFT JOIN ideal AS i ON i.run_id = r.run_id
LEFT JOIN schedule_predictions AS w ON w.run_id = r.run_id AND w.task IS NULL
