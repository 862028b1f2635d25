-- One row: a rank in a profiler step of a capture, with its communication (without waiting for other ranks) and the
-- exposed part of that communication.
-- How: a sweep over the communication launched in the step on each device. A matched collective counts as transfer from
-- its start, for the shortest duration over all ranks. The rest of the collective is waiting, which is neither work nor
-- communication.
-- scope: capture
-- check: unique(capture_id, step, rank)
WITH ranks AS (
    SELECT capture_id, rank, trace_id FROM capture_ranks WHERE left_out_reason IS NULL
),
matched AS (
    SELECT r.capture_id, r.trace_id, r.event_id, r.wait_ns
    FROM collective_ranks AS r
    JOIN collectives AS u ON u.capture_id = r.capture_id AND u.collective_id = r.collective_id
    WHERE u.refused_reason IS NULL
),
launched AS (
    SELECT
        r.capture_id, r.rank, r.trace_id, k.device, k.step, k.start_ns, greatest(k.end_ns, k.start_ns) AS end_ns,
        m.wait_ns
    FROM ranks AS r
    JOIN collective_kernels AS k ON k.trace_id = r.trace_id AND k.step IS NOT NULL
    LEFT JOIN matched AS m ON m.capture_id = r.capture_id AND m.trace_id = k.trace_id AND m.event_id = k.event_id
),
counted AS (
    SELECT
        capture_id, rank, trace_id, device, step, min(start_ns) AS first_ns, max(end_ns) AS last_ns, count(*) AS n,
        count(wait_ns) AS n_matched
    FROM launched
    GROUP BY capture_id, rank, trace_id, device, step
),
stretches AS (
    SELECT
        capture_id, rank, device, step, 'transfer' AS what, start_ns, end_ns - coalesce(wait_ns, 0) AS end_ns
    FROM launched
    UNION ALL
    SELECT capture_id, rank, device, step, 'wait', end_ns - wait_ns, end_ns FROM launched WHERE wait_ns > 0
    UNION ALL
    SELECT
        c.capture_id, c.rank, c.device, c.step, 'compute', greatest(i.start_ns, c.first_ns), least(i.end_ns, c.last_ns)
    FROM counted AS c
    JOIN merged_intervals AS i
        ON i.trace_id = c.trace_id AND i.device = c.device AND i.scope = 'COMPUTATION'
            AND i.start_ns < c.last_ns AND i.end_ns > c.first_ns
),
changes AS (
    SELECT capture_id, rank, device, step, what, start_ns AS at_ns, 1 AS change FROM stretches
    UNION ALL
    SELECT capture_id, rank, device, step, what, end_ns, -1 FROM stretches
),
summed AS (
    SELECT
        capture_id, rank, device, step, at_ns,
        sum(CASE WHEN what = 'transfer' THEN change ELSE 0 END) AS transfer,
        sum(CASE WHEN what = 'wait' THEN change ELSE 0 END) AS wait,
        sum(CASE WHEN what = 'compute' THEN change ELSE 0 END) AS compute
    FROM changes
    GROUP BY capture_id, rank, device, step, at_ns
),
open_at AS (
    SELECT
        capture_id, rank, device, step,
        lead(at_ns) OVER (PARTITION BY capture_id, rank, device, step ORDER BY at_ns) - at_ns AS duration_ns,
        sum(transfer) OVER sofar AS transfer, sum(wait) OVER sofar AS wait, sum(compute) OVER sofar AS compute
    FROM summed
    WINDOW sofar AS (
        PARTITION BY capture_id, rank, device, step ORDER BY at_ns ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    )
),
divided AS (
    SELECT
        capture_id, rank, step,
        sum(CASE WHEN transfer > 0 THEN duration_ns ELSE 0 END) AS transfer_ns,
        sum(CASE WHEN transfer > 0 AND compute = 0 THEN duration_ns ELSE 0 END) AS exposed_ns,
        sum(CASE WHEN wait > 0 AND transfer = 0 THEN duration_ns ELSE 0 END) AS wait_ns,
        sum(CASE WHEN wait > 0 AND transfer = 0 AND compute = 0 THEN duration_ns ELSE 0 END) AS exposed_wait_ns
    FROM open_at
    GROUP BY capture_id, rank, step
),
totals AS (
    SELECT capture_id, rank, step, sum(n) AS n, sum(n_matched) AS n_matched FROM counted GROUP BY capture_id, rank, step
),
measured AS (
    SELECT
        r.capture_id, r.rank, p.step, p.duration_ns, p.efficiency, p.dragging_stage, p.ideal_ns,
        p.communication_ideal_ns,
        p.comp_ideal_ns,
        coalesce(t.n, 0) AS n, coalesce(t.n_matched, 0) AS n_matched,
        CASE WHEN t.n = t.n_matched THEN d.transfer_ns END AS transfer_ns,
        CASE WHEN t.n = t.n_matched THEN d.exposed_ns END AS exposed_ns,
        CASE WHEN t.n = t.n_matched THEN d.wait_ns END AS wait_ns,
        CASE WHEN t.n = t.n_matched THEN d.exposed_wait_ns END AS exposed_wait_ns
    FROM ranks AS r
    JOIN step_pipeline AS p ON p.trace_id = r.trace_id
    LEFT JOIN totals AS t ON t.capture_id = r.capture_id AND t.rank = r.rank AND t.step = p.step
    LEFT JOIN divided AS d ON d.capture_id = r.capture_id AND d.rank = r.rank AND d.step = p.step
)
SELECT
    capture_id,  -- The capture.
    step,  -- The profiler step.
    rank,  -- The rank.
    duration_ns,  -- T_actual: the step's duration on the rank's CPU, ns.
    -- Longest of loading, computing and saving divided by T_actual, as in step_pipeline; excludes waiting and
    -- communication.
    efficiency,
    dragging_stage,  -- The longest stage: load, comp or save.
    CAST(n AS BIGINT) AS n_communication,  -- Communication kernels launched in the step.
    -- Communication kernels whose waiting is known: collectives in which all ranks of the lane took part.
    CAST(n_matched AS BIGINT) AS n_matched,
    -- Communication time if no rank were late, ns; NULL without communication, or if the waiting of any kernel is
    -- unknown.
    TRY_CAST(transfer_ns AS BIGINT) AS transfer_ns,
    -- Part of transfer_ns without concurrent computation, ns; NULL like transfer_ns.
    TRY_CAST(exposed_ns AS BIGINT) AS exposed_transfer_ns,
    -- Time in which communication only waits for other ranks, ns; NULL like transfer_ns.
    TRY_CAST(wait_ns AS BIGINT) AS wait_ns,
    -- Part of wait_ns without concurrent computation, ns: the time that this rank loses to other ranks; NULL like
    -- transfer_ns.
    TRY_CAST(exposed_wait_ns AS BIGINT) AS exposed_wait_ns,
    -- Exposed percentage of communication, without waiting, 0 to 100; NULL like transfer_ns.
    100 * (CAST(exposed_ns AS DOUBLE) / nullif(transfer_ns, 0)) AS exposed_transfer_percent,
    -- (T_actual - waiting - T_ideal) / T_c2c, as in step_pipeline except for the waiting; NULL like transfer_ns, and
    -- without ideal times.
    CASE
        WHEN communication_ideal_ns > 0 AND comp_ideal_ns IS NOT NULL
            THEN (duration_ns - exposed_wait_ns - ideal_ns) / communication_ideal_ns
    END AS exposure_ratio
FROM measured
