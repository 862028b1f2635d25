-- Question: What does the fleet's GPU time go to (data loading, waiting for the host, communication, computing), and in
-- which jobs?
-- Reading: Causes of all traces, each for one GPU, by job. `percent` is the share of the week before the lake's newest
-- trace. `job_percent` is the share of the job in that week, `before_percent` in the eight weeks before (empty: not
-- traced then). Shares are of traced time, so a job that is traced more often weighs more. A truncated file without a
-- clock is in no week.
-- Words: launch bound, data loader
WITH dated AS (
    SELECT
        t.trace_id, coalesce(t.job, t.file) AS job, coalesce(t.job, t.trace_id) AS whose,
        epoch(coalesce(t.started_at, CASE WHEN t.status <> 'partial' THEN t.ingested_at END)) AS at_s
    FROM traces AS t
),
newest AS (
    SELECT max(at_s) AS at_s FROM dated
),
recent AS (
    SELECT
        d.trace_id, d.job, d.whose,
        CASE WHEN n.at_s IS NULL THEN TRUE ELSE n.at_s - d.at_s < 604800 END AS is_new
    FROM dated AS d
    CROSS JOIN newest AS n
    WHERE n.at_s IS NULL OR d.at_s IS NULL OR n.at_s - d.at_s < 9 * 604800
),
told AS (
    SELECT r.job, r.whose, r.is_new, c.cause, c.name, c.duration_ns
    FROM recent AS r
    JOIN causes AS c ON c.trace_id = r.trace_id
    WHERE c.window_id = 'full'
),
named AS (
    SELECT whose, cause, name, sum(duration_ns) AS duration_ns FROM told GROUP BY whose, cause, name
),
most AS (
    SELECT
        whose, cause, name,
        row_number() OVER (
            PARTITION BY whose, cause
            ORDER BY CASE WHEN name = '(other names)' THEN 1 ELSE 0 END, duration_ns DESC, name
        ) AS place
    FROM named
),
sums AS (
    SELECT
        job, whose, cause, coalesce(sum(duration_ns) FILTER (WHERE is_new), 0) AS new_ns,
        sum(duration_ns) FILTER (WHERE NOT is_new) AS before_ns
    FROM told
    GROUP BY job, whose, cause
)
SELECT
    s.job, s.cause, m.name AS most, round(s.new_ns / 1e9, 6) AS gpu_seconds,
    round(100 * s.new_ns / nullif(sum(s.new_ns) OVER (), 0), 1) AS percent,
    round(100 * s.new_ns / nullif(sum(s.new_ns) OVER (PARTITION BY s.whose), 0), 1) AS job_percent,
    round(100 * coalesce(s.before_ns, 0) / nullif(sum(s.before_ns) OVER (PARTITION BY s.whose), 0), 1) AS before_percent
FROM sums AS s
JOIN most AS m ON m.whose = s.whose AND m.cause = s.cause AND m.place = 1
ORDER BY s.new_ns DESC, s.job, s.cause, s.whose
