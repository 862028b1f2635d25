-- One row: a job, with its newest capture and a comparison with earlier captures.
-- How: the captures of a job are ordered by start time, or by ingestion time if their clock carries no date. Captures
-- without either (truncated files, or several files that do not say their ranks) count as the oldest. Earlier captures
-- are those of the 20 before the newest that have the same GPUs and number of ranks. Times are those of
-- capture_metrics.
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
placed AS (
    SELECT
        c.capture_id, c.job, c.n_ranks, c.world_size, r.hardware,
        CASE WHEN c.capture_start_ns > threshold('dated_ns') THEN c.started_at ELSE r.ingested_at END AS began_at
    FROM captures AS c
    LEFT JOIN ranks AS r ON r.capture_id = c.capture_id
),
ordered AS (
    SELECT
        *, count(*) OVER (PARTITION BY job) AS n_captures,
        row_number() OVER (PARTITION BY job ORDER BY began_at DESC NULLS LAST, capture_id) AS ordinal
    FROM placed
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
earlier AS (
    SELECT n.job, n.capture_id, count(t.step_ns) AS n_earlier, median(t.step_ns) AS step_ns
    FROM ordered AS n
    JOIN ordered AS o
        ON
            o.job = n.job AND o.ordinal BETWEEN 2 AND 21 AND o.n_ranks = n.n_ranks
            AND o.hardware IS NOT DISTINCT FROM n.hardware
    JOIN times AS t ON t.capture_id = o.capture_id
    WHERE n.ordinal = 1
    GROUP BY n.job, n.capture_id
),
waited AS (
    SELECT
        capture_id, rank, caused_wait_ns, caused_percent,
        row_number() OVER (PARTITION BY capture_id ORDER BY caused_wait_ns DESC, rank) AS place
    FROM straggler_ranks
    WHERE is_straggler
),
costs AS (
    SELECT capture_id, sum(price) AS price, min(currency) AS currency, sum(gpu_ns) / 1e9 AS gpu_seconds
    FROM capture_costs
    GROUP BY capture_id
)
SELECT
    o.job,  -- The job; NULL for captures whose traces do not name one.
    o.capture_id,  -- Newest capture of the job.
    -- Start of that capture, UTC, or time of ingestion if its clock carries no date; NULL if its files are truncated
    -- and have no clock, or if none of its traces is used.
    o.began_at,
    o.n_captures,  -- Captures of the job in the lake.
    CAST(o.n_ranks AS BIGINT) AS n_ranks,  -- Ranks of the newest capture.
    CAST(o.world_size AS BIGINT) AS world_size,  -- Ranks of the job; NULL if no trace records it.
    o.hardware,  -- Name of the GPUs; NULL if not recorded.
    -- Step time of the newest capture, ns: the mean over steps of the slowest rank; NULL without steps.
    TRY_CAST(t.step_ns AS BIGINT) AS step_ns,
    coalesce(e.n_earlier, 0) AS n_earlier,  -- Earlier captures with a step time.
    -- Median step time of the earlier captures, ns; NULL without any.
    TRY_CAST(e.step_ns AS BIGINT) AS earlier_step_ns,
    -- Change from earlier_step_ns to step_ns, percent; NULL if either is unknown. Table regression_samples and
    -- `tracelake regressions` show whether the change exceeds noise.
    100.0 * (t.step_ns - e.step_ns) / nullif(e.step_ns, 0) AS step_change_percent,
    100.0 * t.idle_ns / nullif(t.span_ns, 0) AS idle_percent,  -- GPU time without work, percent of its span.
    -- Exposed communication, percent of the span of GPU work.
    100.0 * t.exposed_communication_ns / nullif(t.span_ns, 0) AS exposed_communication_percent,
    w.rank AS straggler_rank,  -- The straggler that other ranks waited for longest; NULL without one.
    w.caused_percent AS straggler_percent,  -- Share of all waiting that the straggler caused, percent.
    c.gpu_seconds,  -- GPU time of the newest capture, s.
    c.price,  -- Price of that GPU time; NULL where the job's price is unknown.
    c.currency  -- Currency of the price.
FROM ordered AS o
LEFT JOIN times AS t ON t.capture_id = o.capture_id
LEFT JOIN earlier AS e ON e.capture_id = o.capture_id
LEFT JOIN waited AS w ON w.capture_id = o.capture_id AND w.place = 1
LEFT JOIN costs AS c ON c.capture_id = o.capture_id
WHERE o.ordinal = 1
