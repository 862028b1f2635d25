-- One row: a job on a day, with its step time, idle time and communication.
-- How: medians over the captures that began on the day (UTC), or were ingested on it if their clock carries no date.
-- Captures on other GPUs or with another number of ranks have separate rows.
-- scope: lake
WITH ranks AS (
    SELECT
        r.capture_id, min(t.device_name) AS hardware,
        -- A truncated file has no clock, and may have been written long before its ingestion.
        min(CASE WHEN t.status <> 'partial' THEN t.ingested_at END) AS ingested_at
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
),
placed AS (
    SELECT
        c.job, c.n_ranks, r.hardware, t.step_ns,
        CAST(
            CASE WHEN c.capture_start_ns > threshold('dated_ns') THEN c.started_at ELSE r.ingested_at END AS DATE
        ) AS began_on,
        100.0 * t.idle_ns / nullif(t.span_ns, 0) AS idle_percent,
        100.0 * t.exposed_communication_ns / nullif(t.span_ns, 0) AS exposed_communication_percent
    FROM captures AS c
    JOIN ranks AS r ON r.capture_id = c.capture_id
    LEFT JOIN times AS t ON t.capture_id = c.capture_id
),
days AS (
    SELECT
        job, began_on, hardware, n_ranks, count(*) AS n_captures, median(step_ns) AS step_ns,
        median(idle_percent) AS idle_percent, median(exposed_communication_percent) AS exposed_communication_percent
    FROM placed
    GROUP BY job, began_on, hardware, n_ranks
)
SELECT
    job,  -- The job; NULL for captures whose traces do not name one.
    began_on,  -- The day, UTC; NULL for captures of truncated files, which have no clock.
    hardware,  -- Name of the GPUs; NULL if not recorded.
    CAST(n_ranks AS BIGINT) AS n_ranks,  -- Ranks per capture.
    n_captures,  -- Captures in the row.
    TRY_CAST(step_ns AS BIGINT) AS step_ns,  -- Step time of a capture (mean over steps, slowest rank), ns.
    idle_percent,  -- GPU time without work, percent of its span.
    -- Exposed communication, percent of the span of GPU work.
    exposed_communication_percent,
    -- Change of the step time since the last day with such captures, percent; NULL on the first day, without a day and
    -- without a job, because such captures may be of different jobs. It is not a significance test: `tracelake
    -- regressions` reports whether a change exceeds noise.
    CASE
        WHEN began_on IS NOT NULL AND job IS NOT NULL
            THEN 100.0 * (step_ns - lag(step_ns) OVER earlier) / nullif(lag(step_ns) OVER earlier, 0)
    END AS step_change_percent
FROM days
WINDOW earlier AS (PARTITION BY job, hardware, n_ranks, began_on IS NULL ORDER BY began_on)
