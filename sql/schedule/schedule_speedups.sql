-- One row: a pipelined run and the serial run that it is compared with.
-- How: runs of one comparison (`--compare`) took turns in one process, without a profiler. Their periods and speed-ups
-- are medians over the rounds of the comparison. Other runs are compared with the latest serial run of the same plan,
-- size, seed and jitter on the same device of the same host. Either both runs have a trace, or neither has. Such a
-- single pair has no spread, so it has no verdict. A traced pair has no speed-up, because the profiler slows the
-- engines differently. Simulated times do not depend on the host.
-- scope: lake
WITH ranked AS (
    SELECT
        run_id, period_ns,
        row_number() OVER (PARTITION BY run_id ORDER BY period_ns) AS ordinal,
        count(*) OVER (PARTITION BY run_id) AS n
    FROM schedule_rounds
),
compared AS (
    SELECT run_id, n AS rounds, period_ns
    FROM ranked
    WHERE ordinal = (n + 1) // 2
),
runs AS (
    SELECT
        p.run_id, p.plan, p.plan_hash, p.engine, p.device, p.device_name, p.size, p.jitter_ns, r.jitter_task,
        p.ideal_ns, r.started_at, r.seed, c.rounds, coalesce(c.period_ns, p.period_ns) AS period_ns,
        r.trace_file IS NULL AS is_untraced, CASE WHEN p.device <> 'simulated' THEN r.host END AS host
    FROM schedule_periods AS p
    JOIN schedule_runs AS r ON r.run_id = p.run_id
    LEFT JOIN compared AS c ON c.run_id = p.run_id
),
latest AS (
    SELECT
        plan_hash, device, device_name, host, size, jitter_ns, jitter_task, seed, is_untraced, run_id,
        row_number() OVER (
            PARTITION BY plan_hash, device, device_name, host, size, jitter_ns, jitter_task, seed, is_untraced
            ORDER BY started_at DESC, run_id
        ) AS choice
    FROM runs
    WHERE engine = 'serial' AND rounds IS NULL
),
pairs AS (
    SELECT
        p.run_id, coalesce(v.serial_run_id, l.run_id) AS serial_run_id, v.speedup, v.speedup_low, v.speedup_high,
        v.verdict
    FROM runs AS p
    LEFT JOIN schedule_verdicts AS v ON v.run_id = p.run_id
    LEFT JOIN latest AS l
        ON l.plan_hash = p.plan_hash AND l.device = p.device AND l.choice = 1 AND l.is_untraced = p.is_untraced
            AND l.device_name IS NOT DISTINCT FROM p.device_name AND l.host IS NOT DISTINCT FROM p.host
            AND l.size IS NOT DISTINCT FROM p.size AND l.seed IS NOT DISTINCT FROM p.seed
            AND l.jitter_ns IS NOT DISTINCT FROM p.jitter_ns AND l.jitter_task IS NOT DISTINCT FROM p.jitter_task
            AND p.rounds IS NULL
    WHERE p.engine <> 'serial'
)
SELECT
    p.run_id,  -- The run.
    p.plan,  -- Plan of the run.
    p.engine,  -- sw or dataflow.
    p.device,  -- Device of both runs.
    p.device_name,  -- Name of that device.
    p.size,  -- Size of the workload.
    p.jitter_ns,  -- Mean of the delay added to one task, ns.
    p.period_ns,  -- Period of the run, ns; for a comparison, the median of its rounds.
    x.serial_run_id,  -- The serial run; the serial run of a comparison may be missing from the lake.
    s.period_ns AS serial_period_ns,  -- Period of the serial run, ns, as period_ns; NULL if the run is not in the lake.
    -- Serial period divided by the period of the run; for a comparison, the median of its rounds. NULL for traced runs.
    coalesce(x.speedup, CASE WHEN p.is_untraced THEN 1e0 * s.period_ns / nullif(p.period_ns, 0) END) AS speedup,
    1e0 * p.ideal_ns / nullif(p.period_ns, 0) AS efficiency,  -- Ideal period divided by period_ns.
    x.speedup_low,  -- Smallest speed-up of a round; NULL for runs that no comparison measured.
    x.speedup_high,  -- Largest speed-up of a round; NULL for runs that no comparison measured.
    p.rounds,  -- Rounds of the comparison; NULL for runs that no comparison measured.
    -- Result of the comparison, as text: the speed-up, or a statement that no difference was measured, each with the
    -- ideal period and its bound; or the reason why the host is too slow. NULL for runs that no comparison measured.
    x.verdict
FROM runs AS p
JOIN pairs AS x ON x.run_id = p.run_id
LEFT JOIN runs AS s ON s.run_id = x.serial_run_id
WHERE x.serial_run_id IS NOT NULL
