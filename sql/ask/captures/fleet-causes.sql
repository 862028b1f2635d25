-- Question: What does the fleet's GPU time go to (data loading, waiting for the host, communication, computing), and in
-- which jobs?
-- Reading: Causes of all captures, each trace for one GPU, by job. `percent` is the share of the week before the lake's
-- newest capture. `job_percent` is the share of the job in that week, `before_percent` in the eight weeks before
-- (empty: not traced then). `most` is the name with the most time, among the largest names of each capture. Shares are
-- of traced time, so a job that is traced more often weighs more. Captures without a job have the name of their first
-- file. A truncated file without a clock is in no week.
-- Words: launch bound, data loader
WITH files AS (
    SELECT
        r.capture_id, min(m.file) AS file,
        max(epoch(coalesce(m.started_at, CASE WHEN m.status <> 'partial' THEN m.ingested_at END))) AS at_s
    FROM capture_ranks AS r
    JOIN traces AS m ON m.trace_id = r.trace_id
    WHERE
        r.capture_id IN (SELECT x.capture_id FROM captures AS x WHERE x.job IS NULL)
        OR r.capture_id NOT IN (SELECT x.capture_id FROM capture_summary AS x)
    GROUP BY r.capture_id
),
newest AS (
    SELECT max(CASE WHEN s.capture_id IS NULL THEN f.at_s ELSE epoch(s.began_at) END) AS at_s
    FROM captures AS x
    LEFT JOIN capture_summary AS s ON s.capture_id = x.capture_id
    LEFT JOIN files AS f ON f.capture_id = x.capture_id
),
dated AS (
    SELECT
        c.capture_id, coalesce(c.job, f.file) AS job, coalesce(c.job, c.capture_id) AS whose,
        CASE WHEN s.capture_id IS NULL THEN f.at_s ELSE epoch(s.began_at) END AS at_s
    FROM captures AS c
    LEFT JOIN capture_summary AS s ON s.capture_id = c.capture_id
    LEFT JOIN files AS f ON f.capture_id = c.capture_id
),
recent AS (
    SELECT
        d.capture_id, d.job, d.whose,
        CASE WHEN n.at_s IS NULL THEN TRUE ELSE n.at_s - d.at_s < 604800 END AS is_new
    FROM dated AS d
    CROSS JOIN newest AS n
    WHERE n.at_s IS NULL OR d.at_s IS NULL OR n.at_s - d.at_s < 9 * 604800
),
totals AS (
    SELECT r.job, r.whose, r.is_new, t.cause, t.name, t.duration_ns, t.name_ns
    FROM recent AS r
    JOIN cause_totals AS t ON t.capture_id = r.capture_id
),
named AS (
    SELECT whose, cause, name, sum(name_ns) AS name_ns FROM totals GROUP BY whose, cause, name
),
most AS (
    SELECT
        whose, cause, name,
        row_number() OVER (
            PARTITION BY whose, cause
            ORDER BY CASE WHEN name = '(other names)' THEN 1 ELSE 0 END, name_ns DESC, name
        ) AS place
    FROM named
),
sums AS (
    SELECT
        job, whose, cause, coalesce(sum(duration_ns) FILTER (WHERE is_new), 0) AS new_ns,
        sum(duration_ns) FILTER (WHERE NOT is_new) AS before_ns
    FROM totals
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
