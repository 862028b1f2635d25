-- Question: Which rank takes longest in each step?
-- Reading: One row per step recorded by several ranks of a capture. Check a rank that is slowest in most steps, by much
-- more than the other ranks differ. `stragglers` shows which rank the others wait for.
-- Words: straggler, slow rank
WITH ranked AS (
    SELECT
        c.job, c.started_at, s.capture_id, s.step, s.rank, s.step_ns,
        row_number() OVER (PARTITION BY s.capture_id, s.step ORDER BY s.step_ns DESC, s.rank) AS place
    FROM rank_steps AS s
    JOIN captures AS c ON s.capture_id = c.capture_id
    WHERE s.step IS NOT NULL AND s.step_ns IS NOT NULL
)
SELECT
    job, capture_id, step, max(CASE WHEN place = 1 THEN rank END) AS slowest_rank, max(step_ns) AS longest_ns,
    min(step_ns) AS shortest_ns, count(*) AS n_ranks
FROM ranked
GROUP BY job, started_at, capture_id, step
HAVING count(*) > 1
ORDER BY started_at DESC, capture_id, step
