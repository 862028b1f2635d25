-- One row: a job, with its newest capture and a comparison with earlier captures.
-- How: the captures of a job are ordered by start time, or by ingestion time if their clock carries no date. Captures
-- without either (truncated files, or several files that do not state their ranks) count as the oldest. Earlier
-- captures are those of the 20 before the newest that have the same GPUs and number of ranks. Times are as in
-- capture_metrics.
-- scope: lake
WITH ordered AS (
    SELECT
        c.capture_id, c.job, c.n_ranks, c.world_size, s.hardware, s.began_at,
        s.step_ns, s.span_ns, s.idle_ns, s.exposed_communication_ns,
        count(*) OVER (PARTITION BY c.job) AS n_captures,
        row_number() OVER (PARTITION BY c.job ORDER BY s.began_at DESC NULLS LAST, c.capture_id) AS ordinal
    FROM captures AS c
    LEFT JOIN capture_summary AS s ON s.capture_id = c.capture_id
),
newest AS (
    SELECT * FROM ordered WHERE ordinal = 1
),
earlier AS (
    SELECT n.capture_id, count(o.step_ns) AS n_earlier, median(o.step_ns) AS step_ns
    FROM newest AS n
    JOIN ordered AS o
        ON
            o.job = n.job AND o.ordinal BETWEEN 2 AND 21 AND o.n_ranks = n.n_ranks
            AND o.hardware IS NOT DISTINCT FROM n.hardware
    GROUP BY n.capture_id
),
waited AS (
    SELECT
        s.capture_id, s.rank, s.caused_percent,
        row_number() OVER (PARTITION BY s.capture_id ORDER BY s.caused_wait_ns DESC, s.rank) AS place
    FROM newest AS n
    JOIN straggler_ranks AS s ON s.capture_id = n.capture_id
    WHERE s.is_straggler
),
used AS (
    SELECT g.capture_id, sum(g.gpu_ns) AS gpu_ns
    FROM newest AS n
    JOIN gpu_time_by_cause AS g ON g.capture_id = n.capture_id
    GROUP BY g.capture_id
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
    TRY_CAST(o.step_ns AS BIGINT) AS step_ns,
    coalesce(e.n_earlier, 0) AS n_earlier,  -- Earlier captures with a step time.
    -- Median step time of the earlier captures, ns; NULL without any.
    TRY_CAST(e.step_ns AS BIGINT) AS earlier_step_ns,
    -- Change from earlier_step_ns to step_ns, percent; NULL if either is unknown. Table regression_samples and
    -- `tracelake regressions` show whether the change exceeds noise.
    100.0 * (o.step_ns - e.step_ns) / nullif(e.step_ns, 0) AS step_change_percent,
    100.0 * o.idle_ns / nullif(o.span_ns, 0) AS idle_percent,  -- GPU time without work, percent of its span.
    -- Exposed communication, percent of the span of GPU work.
    100.0 * o.exposed_communication_ns / nullif(o.span_ns, 0) AS exposed_communication_percent,
    w.rank AS straggler_rank,  -- The straggler that other ranks waited for longest; NULL without one.
    w.caused_percent AS straggler_percent,  -- Share of all waiting that the straggler caused, percent.
    u.gpu_ns / 1e9 AS gpu_seconds,  -- GPU time of the newest capture, s.
    -- Price of that GPU time; NULL where the job's price is unknown.
    u.gpu_ns / 3.6e12 * TRY_CAST(p.price_per_gpu_hour AS DOUBLE) AS price,
    CASE WHEN u.gpu_ns IS NOT NULL THEN p.currency END AS currency  -- Currency of the price.
FROM newest AS o
LEFT JOIN earlier AS e ON e.capture_id = o.capture_id
LEFT JOIN waited AS w ON w.capture_id = o.capture_id AND w.place = 1
LEFT JOIN used AS u ON u.capture_id = o.capture_id
LEFT JOIN job_prices AS p ON p.job = o.job
