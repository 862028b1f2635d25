-- One row: an event of the host that is a step of a server, with what its name says.
-- How: names by rules/serving_phases.csv, of a trace only those of its lowest tier; an event that begins in another one
-- on its thread is part of that step.
-- check: unique(trace_id, event_id)
WITH names AS (
    SELECT DISTINCT cat, name
    FROM events
    WHERE cat IN ('user_annotation', 'python_function') AND duration_ns IS NOT NULL AND start_ns IS NOT NULL
),
known AS (
    SELECT n.cat, n.name, r.rule_id, r.tier
    FROM (SELECT cat, name, first_serving_phases(cat, name) AS rule_order FROM names) AS n
    JOIN serving_phases AS r ON r.rule_order = n.rule_order
),
named AS (
    SELECT e.trace_id, e.event_id, e.cat, e.name, e.pid, e.tid, e.start_ns, e.end_ns, k.rule_id, k.tier
    FROM events AS e
    JOIN known AS k ON k.cat = e.cat AND k.name = e.name
    WHERE e.duration_ns IS NOT NULL AND e.start_ns IS NOT NULL
),
lowest AS (
    SELECT trace_id, min(tier) AS tier FROM named GROUP BY trace_id
),
reached AS (
    SELECT
        n.*,
        max(n.end_ns) OVER (
            PARTITION BY n.trace_id, n.pid, n.tid ORDER BY n.start_ns, n.end_ns DESC, n.event_id
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS reached_ns
    FROM named AS n
    JOIN lowest AS l ON l.trace_id = n.trace_id AND l.tier = n.tier
),
-- A number that a name does not tell: no text, or an empty one.
told AS (
    SELECT
        m.trace_id, m.event_id, m.name, m.pid, m.tid, m.start_ns, m.end_ns, m.rule_id, m.tier, r.phase,
        TRY_CAST(nullif(regexp_extract(m.name, r.requests_pattern, 1), '') AS BIGINT) AS n_requests,
        TRY_CAST(nullif(regexp_extract(m.name, r.tokens_pattern, 1), '') AS BIGINT) AS n_tokens,
        TRY_CAST(nullif(regexp_extract(m.name, r.prefill_requests_pattern, 1), '') AS BIGINT) AS n_prefill_requests,
        TRY_CAST(nullif(regexp_extract(m.name, r.prefill_tokens_pattern, 1), '') AS BIGINT) AS n_prefill_tokens,
        TRY_CAST(nullif(regexp_extract(m.name, r.decode_requests_pattern, 1), '') AS BIGINT) AS n_decode_requests,
        TRY_CAST(nullif(regexp_extract(m.name, r.decode_tokens_pattern, 1), '') AS BIGINT) AS n_decode_tokens
    FROM reached AS m
    JOIN serving_phases AS r ON r.rule_id = m.rule_id
    WHERE m.reached_ns IS NULL OR m.start_ns >= m.reached_ns
)
SELECT
    trace_id,  -- The trace.
    event_id,  -- Position in traceEvents.
    name,  -- Its name.
    pid,  -- Process.
    tid,  -- Thread.
    start_ns,  -- Start on the host, ns.
    end_ns,  -- End on the host, ns.
    rule_id,  -- Rule in serving_phases.
    tier,  -- 1 where the name says what the step does.
    -- prefill, decode, mixed, idle or unknown; NULL where the name does not say.
    CASE
        WHEN phase IS NOT NULL THEN phase
        WHEN n_prefill_requests > 0 AND n_decode_requests > 0 THEN 'mixed'
        WHEN n_prefill_requests > 0 THEN 'prefill'
        WHEN n_decode_requests > 0 THEN 'decode'
        WHEN n_prefill_requests = 0 AND n_decode_requests = 0 THEN 'idle'
    END AS phase,
    -- Requests in the batch; NULL where the name does not say.
    CASE
        WHEN n_requests IS NOT NULL THEN n_requests
        WHEN n_prefill_requests IS NOT NULL OR n_decode_requests IS NOT NULL
            THEN coalesce(n_prefill_requests, 0) + coalesce(n_decode_requests, 0)
    END AS n_requests,
    -- Tokens of all requests; NULL where the name does not say.
    CASE
        WHEN n_tokens IS NOT NULL THEN n_tokens
        WHEN n_prefill_requests > 0 AND n_prefill_tokens IS NULL THEN NULL
        WHEN n_decode_requests > 0 AND n_decode_tokens IS NULL THEN NULL
        WHEN n_prefill_tokens IS NOT NULL OR n_decode_tokens IS NOT NULL
            THEN coalesce(n_prefill_tokens, 0) + coalesce(n_decode_tokens, 0)
    END AS n_tokens,
    n_prefill_requests,  -- Requests in prefill; NULL where the name does not say.
    n_prefill_tokens,  -- Tokens of these; NULL where the name does not say.
    n_decode_requests,  -- Requests in decode; NULL where the name does not say.
    n_decode_tokens  -- Tokens of these; NULL where the name does not say.
FROM told
