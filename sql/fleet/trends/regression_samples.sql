-- One row: a tested metric of a good capture, with the capture's position in the history of its job, 1 for the newest.
-- How: captures of one job on the same hardware with the same number of ranks form a history. A capture is good if all
-- ranks are present and no trace is truncated. For each metric, only captures with the unit of the newest capture
-- count, because times per step are not comparable with times of captures without steps.
-- scope: lake
WITH good AS (
    SELECT
        c.capture_id, c.job, c.n_ranks, s.hardware,
        -- A trace that counts time from the boot of its host carries no date, so the time of ingestion is used.
        CASE
            WHEN c.capture_start_ns > threshold('dated_ns') THEN c.capture_start_ns
            ELSE TRY_CAST(extract(EPOCH FROM s.began_at) * 1000000000 AS BIGINT)
        END AS at_ns
    FROM captures AS c
    JOIN capture_summary AS s ON s.capture_id = c.capture_id
    WHERE c.job IS NOT NULL AND s.is_whole
),
-- Histories and their captures are numbered first, because the windows over all their metrics then compare numbers.
placed AS (
    SELECT
        *, dense_rank() OVER (ORDER BY job, hardware, n_ranks) AS history,
        row_number() OVER (PARTITION BY job, hardware, n_ranks ORDER BY at_ns DESC, capture_id) AS place
    FROM good
),
measured AS (
    SELECT p.*, m.metric, m.value, m.unit
    FROM placed AS p
    JOIN capture_metrics AS m ON m.capture_id = p.capture_id AND m.rank IS NULL AND m.step IS NULL AND m.name IS NULL
    JOIN capture_metric_kinds AS k ON k.metric = m.metric AND k.worse = 'up'
),
newest AS (
    SELECT history, metric, min(place) AS place FROM measured GROUP BY history, metric
),
units AS (
    SELECT m.history, m.metric, m.unit
    FROM measured AS m
    JOIN newest AS n ON n.history = m.history AND n.metric = m.metric AND n.place = m.place
)
SELECT
    m.capture_id,  -- The capture.
    m.job,  -- Job of the capture.
    m.hardware,  -- Name of the GPUs; NULL if not recorded.
    CAST(m.n_ranks AS BIGINT) AS n_ranks,  -- Ranks of the capture.
    -- Start of the capture, ns since 1970; time of ingestion if the clock carries no date.
    TRY_CAST(m.at_ns AS BIGINT) AS at_ns,
    m.metric,  -- The metric, in capture_metric_kinds.
    m.value,  -- Value for the whole capture.
    m.unit,  -- Unit of the value.
    -- Position in the history, 1 for the newest.
    row_number() OVER (PARTITION BY m.history, m.metric ORDER BY m.place) AS ordinal
FROM measured AS m
JOIN units AS u ON u.history = m.history AND u.metric = m.metric AND u.unit = m.unit
