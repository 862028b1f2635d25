-- Question: How long is the period of each plan, with each engine?
-- Reading: The latest run of each plan, engine, device, host, size and jitter, slowest first. `efficiency` 1 is the
-- ideal period: the work on the busiest stream or the longest cycle of dependencies, whichever `bound_by` names.
-- `speedup` is over the serial run that it is compared with, and `verdict` is the result of a comparison.
-- Words: bubble, pipeline
WITH ranked AS (
    SELECT
        p.*, r.host, r.jitter_task,
        row_number() OVER (
            PARTITION BY
                p.plan_hash, p.engine, p.device, p.device_name, r.host, p.size, p.jitter_ns, r.jitter_task
            ORDER BY r.started_at DESC, p.run_id
        ) AS place
    FROM schedule_periods AS p
    JOIN schedule_runs AS r ON r.run_id = p.run_id
)
SELECT
    p.plan, p.engine, p.device, p.device_name, p.host, p.size, p.jitter_ns, p.jitter_task, p.period_ns, p.ideal_ns,
    p.bound_by, p.efficiency, s.speedup, s.verdict, p.predicted_period_ns, p.run_id
FROM ranked AS p
LEFT JOIN schedule_speedups AS s ON s.run_id = p.run_id
WHERE p.place = 1
ORDER BY p.plan, p.device, p.period_ns DESC, p.engine, p.run_id
