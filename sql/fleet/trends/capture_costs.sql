-- One row: GPU time of a capture by cause, with its price where the job's price is known.
-- How: gpu_time_by_cause summed over ranks. The rows of a capture add up exactly to its span multiplied by its number
-- of GPUs. Modules identify recomputation. If a rank's trace has no modules, the row recompute is NULL and its time
-- counts as compute.
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
    -- straggler_wait, exposed_communication (transfer), unsplit_communication (transfer and waiting, where calls
    -- are not matched or not used), launch_overhead, idle_host, recompute, compute (nothing lost),
    -- exposed_memory, not_in_trace or unattributed.
    c.cause,
    TRY_CAST(c.gpu_ns AS BIGINT) AS gpu_ns,  -- GPU time that the cause took on all ranks, ns; NULL where not measured.
    c.gpu_ns / 1e9 AS gpu_seconds,  -- gpu_ns in seconds.
    -- Part of gpu_ns that was not lost, because kernels computed concurrently, ns.
    TRY_CAST(c.hidden_ns AS BIGINT) AS hidden_ns,
    -- gpu_ns in percent of the span multiplied by the number of GPUs.
    100e0 * c.gpu_ns / nullif(sum(c.gpu_ns) OVER (PARTITION BY c.capture_id), 0) AS percent,
    k.job,  -- The job; NULL where unknown.
    p.team,  -- Team that pays, from prices.csv; NULL if not specified there.
    -- Price of gpu_ns; NULL where the job's price is unknown.
    c.gpu_ns / 3.6e12 * TRY_CAST(p.price_per_gpu_hour AS DOUBLE) AS price,
    p.currency  -- Currency of the price.
FROM causes AS c
JOIN captures AS k ON k.capture_id = c.capture_id
LEFT JOIN job_prices AS p ON p.job = k.job
