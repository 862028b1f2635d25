-- One row: a capture with its GPUs, the time at which it began, and its times, for pages about many captures.
-- How: the rows of capture_metrics about the whole capture, as columns. A capture without a used trace has no row.
-- scope: capture
-- check: unique(capture_id)
WITH ranks AS (
    SELECT
        r.capture_id, min(t.device_name) AS hardware,
        -- A truncated file has no clock, and may have been written long before its ingestion.
        min(CASE WHEN t.status <> 'partial' THEN t.ingested_at END) AS ingested_at,
        sum(CASE WHEN t.status = 'partial' THEN 1 ELSE 0 END) AS n_truncated
    FROM capture_ranks AS r
    JOIN traces AS t ON t.trace_id = r.trace_id
    WHERE r.left_out_reason IS NULL
    GROUP BY r.capture_id
),
times AS (
    SELECT
        capture_id,
        max(CASE WHEN metric = 'step' THEN value END) AS step_ns,
        max(CASE WHEN metric = 'span' THEN value END) AS span_ns,
        max(CASE WHEN metric = 'idle' THEN value END) AS idle_ns,
        max(CASE WHEN metric = 'exposed_communication' THEN value END) AS exposed_communication_ns
    FROM capture_metrics
    WHERE rank IS NULL AND step IS NULL AND name IS NULL
    GROUP BY capture_id
)
SELECT
    r.capture_id,  -- The capture.
    r.hardware,  -- Name of the GPUs; NULL if not recorded.
    -- Start of the capture, UTC, or time of ingestion if its clock carries no date; NULL if its files are truncated and
    -- have no clock.
    CASE WHEN c.capture_start_ns > threshold('dated_ns') THEN c.started_at ELSE r.ingested_at END AS began_at,
    -- All ranks are present and no trace is truncated.
    coalesce(c.world_size, c.n_ranks) = c.n_ranks AND r.n_truncated = 0 AS is_whole,
    t.step_ns,  -- Mean over steps of the slowest rank's step, ns; NULL without steps.
    -- Span of GPU work, ns. This time and those below are means over ranks (and steps, if there are any), not rounded.
    t.span_ns,
    t.idle_ns,  -- Part of the span without GPU work, ns.
    t.exposed_communication_ns  -- Part of the span with communication and without a computing kernel, ns.
FROM ranks AS r
JOIN captures AS c ON c.capture_id = r.capture_id
LEFT JOIN times AS t ON t.capture_id = r.capture_id
