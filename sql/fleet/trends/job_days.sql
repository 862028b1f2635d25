-- One row: a job on a day: the trend of its step time, idling and communication.
-- How: medians over the captures that began on the day (UTC), or were ingested on it where a clock does not give the
-- date; captures on other GPUs or with another number of ranks are separate rows.
-- scope: lake
WITH ranks AS (
    SELECT
        r.capture_id, min(t.device_name) AS hardware,
        -- A file that ends early has lost its clock, and may have been written long before.
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
    began_on,  -- The day, UTC; NULL for captures of files that end early and have no clock.
    hardware,  -- Name of the GPUs; NULL where the traces do not say.
    CAST(n_ranks AS BIGINT) AS n_ranks,  -- Ranks of its captures.
    n_captures,  -- Its captures of that day.
    TRY_CAST(step_ns AS BIGINT) AS step_ns,  -- Step time of a capture (mean over steps, slowest rank), ns.
    idle_percent,  -- GPU time without work, percent of its span.
    -- Communication that nothing hides, percent of the span of GPU work.
    exposed_communication_percent,
    -- Change of the step time since the last day with captures of the same kind, percent; NULL on the first. It is no
    -- test: `tracelake regressions` says whether a change is more than noise.
    100.0 * (
        step_ns - lag(step_ns) OVER (PARTITION BY job, hardware, n_ranks ORDER BY began_on)
    ) / nullif(lag(step_ns) OVER (PARTITION BY job, hardware, n_ranks ORDER BY began_on), 0) AS step_change_percent
FROM days
