-- One row: a tested metric of a good capture, with the capture's position in the history of its job, 1 for the newest.
-- How: captures of one job on the same hardware with the same number of ranks form a history. A capture is good if all
-- ranks are present and no trace is truncated. Of a metric, only captures with the newest one's unit count, because
-- times per step cannot be compared with those of captures without steps.
-- scope: lake
WITH ranks AS (
    SELECT r.capture_id, r.rank, t.device_name, t.status, t.ingested_at
    FROM capture_ranks AS r
    JOIN traces AS t ON t.trace_id = r.trace_id
    WHERE r.left_out_reason IS NULL
),
good AS (
    SELECT
        c.capture_id, c.job, c.n_ranks, min(r.device_name) AS hardware,
        -- A trace that counts time from the boot of its host carries no date, so the time of ingestion is used.
        CASE
            WHEN c.capture_start_ns > threshold('dated_ns') THEN c.capture_start_ns
            ELSE TRY_CAST(extract(EPOCH FROM min(r.ingested_at)) * 1000000000 AS BIGINT)
        END AS at_ns
    FROM captures AS c
    JOIN ranks AS r ON r.capture_id = c.capture_id
    WHERE c.job IS NOT NULL
    GROUP BY c.capture_id, c.job, c.n_ranks, c.world_size, c.capture_start_ns
    HAVING coalesce(c.world_size, c.n_ranks) = c.n_ranks AND count(*) FILTER (WHERE r.status = 'partial') = 0
),
measured AS (
    SELECT
        g.*, m.metric, m.value, m.unit,
        first_value(m.unit) OVER (
            PARTITION BY g.job, g.hardware, g.n_ranks, m.metric ORDER BY g.at_ns DESC, g.capture_id
        ) AS newest_unit
    FROM good AS g
    JOIN capture_metrics AS m ON m.capture_id = g.capture_id AND m.rank IS NULL AND m.step IS NULL AND m.name IS NULL
    JOIN capture_metric_kinds AS k ON k.metric = m.metric AND k.worse = 'up'
)
SELECT
    capture_id,  -- The capture.
    job,  -- Job of the capture.
    hardware,  -- Name of the GPUs; NULL if not recorded.
    CAST(n_ranks AS BIGINT) AS n_ranks,  -- Ranks of the capture.
    -- Start of the capture, ns since 1970; time of ingestion if the clock carries no date.
    TRY_CAST(at_ns AS BIGINT) AS at_ns,
    metric,  -- The metric, in capture_metric_kinds.
    value,  -- Value for the whole capture.
    unit,  -- Unit of the value.
    -- Position in the history, 1 for the newest.
    row_number() OVER (PARTITION BY job, hardware, n_ranks, metric ORDER BY at_ns DESC, capture_id) AS ordinal
FROM measured
WHERE unit = newest_unit
