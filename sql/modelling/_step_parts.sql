-- One row: a profiler step with the duration of its parts; overlaps within a part count once.
-- How: a sweep over the starts and ends of _step_intervals: between two of them, the set of open intervals does not
-- change.
WITH bounds AS (
    SELECT
        trace_id, step,
        min(start_ns) FILTER (WHERE part = 'compute') AS first_ns,
        max(end_ns) FILTER (WHERE part = 'compute') AS last_ns,
        count(*) FILTER (WHERE part = 'transfer') AS n_transfers
    FROM _step_intervals
    GROUP BY trace_id, step
),
changes AS (
    SELECT trace_id, step, part, start_ns AS at_ns, 1 AS change FROM _step_intervals
    UNION ALL
    SELECT trace_id, step, part, end_ns, -1 FROM _step_intervals
),
summed AS (
    SELECT
        trace_id, step, at_ns,
        sum(CASE WHEN part IN ('compute', 'optimizer') THEN change ELSE 0 END) AS compute,
        sum(CASE WHEN part IN ('collective', 'transfer') THEN change ELSE 0 END) AS comm,
        sum(CASE WHEN part IN ('compute', 'optimizer', 'collective') THEN change ELSE 0 END) AS stage,
        sum(CASE WHEN part = 'htod' THEN change ELSE 0 END) AS htod,
        sum(CASE WHEN part IN ('dtoh', 'save') THEN change ELSE 0 END) AS saving,
        sum(CASE WHEN part = 'load' THEN change ELSE 0 END) AS loading,
        sum(CASE WHEN part = 'running' THEN change ELSE 0 END) AS running
    FROM changes
    GROUP BY trace_id, step, at_ns
),
open_parts AS (
    SELECT
        trace_id, step, at_ns,
        lead(at_ns) OVER (PARTITION BY trace_id, step ORDER BY at_ns) AS until_ns,
        sum(compute) OVER (
            PARTITION BY trace_id, step ORDER BY at_ns ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        ) AS compute,
        sum(comm) OVER (
            PARTITION BY trace_id, step ORDER BY at_ns ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        ) AS comm,
        sum(stage) OVER (
            PARTITION BY trace_id, step ORDER BY at_ns ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        ) AS stage,
        sum(htod) OVER (
            PARTITION BY trace_id, step ORDER BY at_ns ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        ) AS htod,
        sum(saving) OVER (
            PARTITION BY trace_id, step ORDER BY at_ns ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        ) AS saving,
        sum(loading) OVER (
            PARTITION BY trace_id, step ORDER BY at_ns ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        ) AS loading,
        sum(running) OVER (
            PARTITION BY trace_id, step ORDER BY at_ns ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        ) AS running
    FROM summed
),
stretches AS (
    SELECT *, coalesce(until_ns - at_ns, 0) AS duration_ns FROM open_parts
)
SELECT
    s.trace_id,  -- The trace.
    s.step,  -- The profiler step.
    -- With computing kernels launched in the step, ns.
    sum(CASE WHEN s.compute > 0 THEN s.duration_ns ELSE 0 END) AS compute_ns,
    -- With communication launched in the step, ns.
    sum(CASE WHEN s.comm > 0 THEN s.duration_ns ELSE 0 END) AS communication_ns,
    sum(CASE WHEN s.comm > 0 AND s.compute > 0 THEN s.duration_ns ELSE 0 END) AS overlapped_ns,  -- With both, ns.
    -- With copies to the device launched in the step, ns.
    sum(CASE WHEN s.htod > 0 THEN s.duration_ns ELSE 0 END) AS htod_ns,
    -- With copies to the host launched in the step, or in annotations that save, ns.
    sum(CASE WHEN s.saving > 0 THEN s.duration_ns ELSE 0 END) AS save_ns,
    sum(CASE WHEN s.loading > 0 THEN s.duration_ns ELSE 0 END) AS loader_ns,  -- In the data loader, ns.
    -- In the data loader while no GPU work runs, ns.
    sum(CASE WHEN s.loading > 0 AND s.running = 0 THEN s.duration_ns ELSE 0 END) AS stall_ns,
    -- Between first_ns and last_ns with kernels that are not transfers, ns.
    sum(
        CASE WHEN s.stage > 0 AND s.at_ns >= b.first_ns AND s.at_ns < b.last_ns THEN s.duration_ns ELSE 0 END
    ) AS stage_busy_ns,
    b.first_ns,  -- Start of the first computation (the optimizer's left out), ns; NULL without any.
    b.last_ns,  -- End of the last one, ns; NULL without any.
    b.n_transfers  -- Kernels that send to or receive from another rank.
FROM stretches AS s
JOIN bounds AS b ON b.trace_id = s.trace_id AND b.step = s.step
GROUP BY s.trace_id, s.step, b.first_ns, b.last_ns, b.n_transfers
