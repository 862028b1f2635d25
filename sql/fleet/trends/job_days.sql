-- One row: a job on a day, with its step time, idle time and communication.
-- How: medians over the captures that began on the day (UTC), or were ingested on it if their clock carries no date.
-- Captures on other GPUs or with another number of ranks have separate rows.
-- scope: lake
WITH placed AS (
    SELECT
        c.job, c.n_ranks, s.hardware, s.step_ns, CAST(s.began_at AS DATE) AS began_on,
        100.0 * s.idle_ns / nullif(s.span_ns, 0) AS idle_percent,
        100.0 * s.exposed_communication_ns / nullif(s.span_ns, 0) AS exposed_communication_percent
    FROM captures AS c
    JOIN capture_summary AS s ON s.capture_id = c.capture_id
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
    -- Change of the step time since the last day with such captures, percent. NULL on the first day and for captures
    -- without a day. Also NULL without a job, because these captures may be of different jobs. It is not a significance
    -- test: `tracelake regressions` reports whether a change exceeds noise.
    CASE
        WHEN began_on IS NOT NULL AND job IS NOT NULL
            THEN 100.0 * (step_ns - lag(step_ns) OVER earlier) / nullif(lag(step_ns) OVER earlier, 0)
    END AS step_change_percent
FROM days
WINDOW earlier AS (PARTITION BY job, hardware, n_ranks, began_on IS NULL ORDER BY began_on)
