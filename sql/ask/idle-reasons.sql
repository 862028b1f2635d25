-- Topic: GPU time
-- Question: Why is the GPU idle?
-- Reading: Idle time by reason and by what the launching thread did, all gaps together. `host_call` is the operator or
-- call that took most of each gap; NULL where the thread was in none. The rows of a rank add up to `idle_ns` of
-- temporal_breakdown.
SELECT
    t.job, t.rank, g.reason, g.host_call, count(*) AS n_gaps, round(sum(g.duration_ns) / 1e6, 3) AS idle_ms,
    round(100 * sum(g.duration_ns) / sum(sum(g.duration_ns)) OVER (PARTITION BY t.job, t.rank), 1) AS percent_of_idle
FROM idle_gaps AS g
JOIN traces AS t ON g.trace_id = t.trace_id
GROUP BY t.job, t.rank, g.reason, g.host_call
ORDER BY sum(g.duration_ns) DESC, t.job, t.rank, g.reason, g.host_call
