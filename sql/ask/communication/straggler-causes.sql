-- Question: What does a straggler spend more GPU time on than the other ranks?
-- Reading: The causes of a straggler's GPU time, by excess over the median of the other ranks with GPU work, largest
-- first. Such a rank without the cause spent 0 on it. `usual_ns` is NULL if no other rank has the cause. Without
-- stragglers, there are no rows.
-- Words: straggler, slow rank
WITH spent AS (
    SELECT c.job, c.started_at, g.capture_id, g.rank, g.cause, sum(g.gpu_ns) AS gpu_ns
    FROM gpu_time_by_cause AS g
    JOIN captures AS c ON g.capture_id = c.capture_id
    WHERE g.cause NOT IN ('straggler_wait', 'not_in_trace')
    GROUP BY c.job, c.started_at, g.capture_id, g.rank, g.cause
),
ranks AS (
    SELECT DISTINCT capture_id, rank FROM gpu_time_by_cause WHERE device IS NOT NULL
),
usual AS (
    SELECT
        o.capture_id, o.rank, o.cause,
        CASE WHEN count(a.gpu_ns) > 0 THEN median(coalesce(a.gpu_ns, 0)) END AS gpu_ns
    FROM spent AS o
    JOIN straggler_ranks AS s ON s.capture_id = o.capture_id AND s.rank = o.rank AND s.is_straggler
    LEFT JOIN ranks AS r ON r.capture_id = o.capture_id AND r.rank <> o.rank
    LEFT JOIN spent AS a ON a.capture_id = r.capture_id AND a.rank = r.rank AND a.cause = o.cause
    GROUP BY o.capture_id, o.rank, o.cause
)
SELECT o.job, o.capture_id, o.rank, o.cause, CAST(o.gpu_ns AS BIGINT) AS gpu_ns, u.gpu_ns AS usual_ns
FROM spent AS o
JOIN usual AS u ON u.capture_id = o.capture_id AND u.rank = o.rank AND u.cause = o.cause
ORDER BY o.started_at DESC, o.capture_id, o.rank, coalesce(o.gpu_ns, 0) - coalesce(u.gpu_ns, 0) DESC, o.cause
