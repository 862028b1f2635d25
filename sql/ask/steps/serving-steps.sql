-- Question: How many steps and tokens a second does a server do, in prefill and decode, by batch size?
-- Reading: One row per phase and batch size (NULL: not recorded). Rates are over the time of these steps only, without
-- pauses between steps. Tokens are input tokens of the model; in prefill, the tokens of the prompts. p50 and p99 are
-- lengths of actual steps (nearest rank). `n_from_kernels` counts steps whose phase only their kernels show.
-- `earlier_percent` is the share of their time with GPU work from before the trace. From 10 % on, `caveat` reports it,
-- because the GPU also did other work.
-- Words: prefill, decode, TTFT, TPOT, tokens/s, throughput, latency, inference
WITH ranked AS (
    SELECT
        t.job, t.file, coalesce(t.job, t.trace_id) AS whose, t.rank, s.phase, s.phase_source, s.n_requests, s.n_tokens,
        s.step_ns, s.earlier_ns, s.latency_ns, s.gpu_busy_ns,
        row_number() OVER (
            PARTITION BY coalesce(t.job, t.trace_id), t.rank, s.phase, s.n_requests
            ORDER BY s.step_ns, s.trace_id, s.step_number
        ) AS place,
        count(*) OVER (PARTITION BY coalesce(t.job, t.trace_id), t.rank, s.phase, s.n_requests) AS n_steps
    FROM serving_steps AS s
    JOIN traces AS t ON s.trace_id = t.trace_id
)
SELECT
    coalesce(job, file) AS job, rank, phase, n_requests, count(*) AS n_steps,
    round(min(CASE WHEN place >= 0.5 * n_steps THEN step_ns END) / 1e6, 3) AS p50_ms,
    round(min(CASE WHEN place >= 0.99 * n_steps THEN step_ns END) / 1e6, 3) AS p99_ms,
    round(count(*) / nullif(sum(step_ns) / 1e9, 0), 1) AS steps_per_s,
    round(
        CASE WHEN count(n_tokens) = count(*) THEN sum(n_tokens) / nullif(sum(step_ns) / 1e9, 0) END, 1
    ) AS tokens_per_s,
    round(
        100 * sum(gpu_busy_ns) / nullif(sum(CASE WHEN gpu_busy_ns IS NOT NULL THEN latency_ns END), 0), 1
    ) AS gpu_busy_percent,
    sum(CASE WHEN phase_source = 'kernels' THEN 1 ELSE 0 END) AS n_from_kernels,
    round(
        100 * sum(earlier_ns) / nullif(sum(CASE WHEN earlier_ns IS NOT NULL THEN step_ns END), 0), 1
    ) AS earlier_percent,
    CASE
        WHEN 10 * sum(earlier_ns) >= sum(CASE WHEN earlier_ns IS NOT NULL THEN step_ns END)
            THEN 'rates include work from before the trace'
    END AS caveat
FROM ranked
GROUP BY coalesce(job, file), whose, rank, phase, n_requests
ORDER BY job, whose, rank, phase, n_requests
