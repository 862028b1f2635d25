-- Question: What does a straggler spend more GPU time on than the other ranks?
-- Reading: The causes of a straggler's GPU time, by excess over the median of the other ranks, largest first.
-- `usual_ns` is NULL if no other rank has the cause. Without stragglers, there are no rows.
-- Words: straggler, slow rank
WITH spent AS (
    SELECT c.job, c.started_at, g.capture_id, g.rank, g.cause, sum(g.gpu_ns) AS gpu_ns
    FROM gpu_time_by_cause AS g
    JOIN captures AS c ON g.capture_id = c.capture_id
    WHERE g.cause NOT IN ('straggler_wait', 'not_in_trace')
    GROUP BY c.job, c.started_at, g.capture_id, g.rank, g.cause
)
SELECT
    o.job, o.capture_id, o.rank, o.cause, CAST(o.gpu_ns AS BIGINT) AS gpu_ns, median(a.gpu_ns) AS usual_ns
FROM spent AS o
JOIN straggler_ranks AS s ON s.capture_id = o.capture_id AND s.rank = o.rank AND s.is_straggler
LEFT JOIN spent AS a ON a.capture_id = o.capture_id AND a.cause = o.cause AND a.rank <> o.rank
GROUP BY o.job, o.started_at, o.capture_id, o.rank, o.cause, o.gpu_ns
ORDER BY
    o.started_at DESC, o.capture_id, o.rank, coalesce(o.gpu_ns, 0) - coalesce(median(a.gpu_ns), 0) DESC, o.cause
