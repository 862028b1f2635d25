-- One row: a pipelined run and the latest serial run of the same plan, size and jitter on the same device.
-- scope: lake
WITH serial AS (
    SELECT
        p.plan_hash, p.device, p.device_name, p.size, p.jitter_ns, p.run_id, p.period_ns,
        row_number() OVER (
            PARTITION BY p.plan_hash, p.device, p.device_name, p.size, p.jitter_ns ORDER BY r.started_at DESC, p.run_id
        ) AS choice
    FROM schedule_periods AS p
    JOIN schedule_runs AS r ON r.run_id = p.run_id
    WHERE p.engine = 'serial'
)
SELECT
    p.run_id,  -- The run.
    p.plan,  -- Plan of the run.
    p.engine,  -- sw or dataflow.
    p.device,  -- Device of both runs.
    p.device_name,  -- Name of that device.
    p.size,  -- Size of the workload.
    p.jitter_ns,  -- Mean of the delay added to one task, ns.
    p.period_ns,  -- Period of the run, ns.
    s.run_id AS serial_run_id,  -- The serial run.
    s.period_ns AS serial_period_ns,  -- Period of the serial run, ns.
    1e0 * s.period_ns / nullif(p.period_ns, 0) AS speedup,  -- Serial period divided by the period of the run.
    p.efficiency  -- Ideal period divided by measured period.
FROM schedule_periods AS p
JOIN serial AS s
    ON s.plan_hash = p.plan_hash AND s.device = p.device AND s.choice = 1
        AND s.device_name IS NOT DISTINCT FROM p.device_name AND s.size IS NOT DISTINCT FROM p.size
        AND s.jitter_ns IS NOT DISTINCT FROM p.jitter_ns
WHERE p.engine <> 'serial'
