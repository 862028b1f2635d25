-- One row: what a cause took of a capture's GPU time, with its price where the job's is known.
-- How: gpu_time_by_cause summed over ranks; all rows of a capture add up to its span times its GPUs, exactly. Recomputation is told apart by modules: where a rank's trace has none, its row is NULL and its time is in compute.
-- scope: lake
WITH known AS (
    SELECT r.capture_id, min(coalesce(a.n_in_forward_module, 0)) AS n
    FROM capture_ranks AS r
    LEFT JOIN span_attribution AS a ON a.trace_id = r.trace_id
    WHERE r.left_out_reason IS NULL
    GROUP BY r.capture_id
),
causes AS (
    SELECT
        capture_id, cause, sum(gpu_ns) AS gpu_ns, sum(hidden_ns) AS hidden_ns
    FROM gpu_time_by_cause
    GROUP BY capture_id, cause
    UNION ALL
    SELECT
        k.capture_id, 'recompute', CASE WHEN k.n > 0 THEN 0 END AS gpu_ns, CASE WHEN k.n > 0 THEN 0 END AS hidden_ns
    FROM known AS k
    WHERE
        k.capture_id IN (SELECT x.capture_id FROM gpu_time_by_cause AS x)
        AND k.capture_id NOT IN (SELECT x.capture_id FROM gpu_time_by_cause AS x WHERE x.cause = 'recompute')
)
SELECT
    c.capture_id,  -- The capture.
    c.cause,  -- straggler_wait, exposed_communication, launch_overhead, idle_host, recompute, compute (nothing lost), exposed_memory, not_in_trace or unattributed.
    TRY_CAST(c.gpu_ns AS BIGINT) AS gpu_ns,  -- GPU time that the cause took on all ranks, ns; NULL is not measured.
    c.gpu_ns / 1e9 AS gpu_seconds,  -- The same, s.
    TRY_CAST(c.hidden_ns AS BIGINT) AS hidden_ns,  -- Of that, while kernels computed beside it, so that it was not lost, ns.
    100.0 * c.gpu_ns / nullif(sum(c.gpu_ns) OVER (PARTITION BY c.capture_id), 0) AS percent,  -- In percent of the span times the GPUs.
    k.job,  -- The job; NULL where nothing tells.
    p.team,  -- Who pays, by prices.csv; NULL where it does not say.
    c.gpu_ns / 3.6e12 * TRY_CAST(p.price_per_gpu_hour AS DOUBLE) AS price,  -- Price of that time; NULL where the job's price is not known.
    p.currency  -- Currency of the price.
FROM causes AS c
JOIN captures AS k ON k.capture_id = c.capture_id
LEFT JOIN job_prices AS p ON p.job = k.job
