-- Question: How evenly are experts loaded, and what does it cost?
-- Reading: One row per capture and process group. `lane` distinguishes groups of different ranks that share a name. The
-- row covers all-to-alls whose split sizes are in the trace, of experts but also of embeddings. The imbalance is the
-- largest load divided by the mean (NULL: the load of some rank is unknown). `wait_after_ms` is the waiting of all
-- ranks in the next collective of the group. `for_busiest_ms` is the part of it spent waiting for the rank with the
-- largest load.
SELECT
    c.job, c.capture_id, b.group_name, b.lane, count(*) AS n_collectives,
    round(avg(b.imbalance), 3) AS mean_imbalance, round(max(b.imbalance), 3) AS max_imbalance,
    count(DISTINCT b.busiest_rank) AS n_busiest_ranks, round(sum(b.wait_ns) / 1e6, 3) AS wait_ms,
    round(sum(b.next_wait_ns) / 1e6, 3) AS wait_after_ms,
    round(
        sum(CASE WHEN b.is_waited_for THEN b.next_wait_ns WHEN b.next_wait_ns IS NOT NULL THEN 0 END) / 1e6, 3
    ) AS for_busiest_ms
FROM expert_balance AS b
JOIN captures AS c ON b.capture_id = c.capture_id
GROUP BY c.job, c.capture_id, b.group_name, b.lane
ORDER BY c.job, c.capture_id, b.group_name, b.lane
