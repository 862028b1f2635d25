-- Question: How much GPU time does each module take on each rank?
-- Reading: Forward and backward. A nested module also counts in its parent, so never add modules up. A rank that spends
-- more time on a module than the other ranks has more work in it, or a slower GPU.
SELECT
    coalesce(t.job, t.file) AS job, t.rank, s.name, CAST(sum(s.busy_ns) AS BIGINT) AS busy_ns
FROM span_names AS s
JOIN traces AS t ON s.trace_id = t.trace_id
WHERE s.kind = 'module' AND s.phase IN ('fwd', 'bwd')
GROUP BY t.trace_id, coalesce(t.job, t.file), t.rank, s.name
HAVING sum(s.busy_ns) > 0
ORDER BY busy_ns DESC, s.name, job, t.rank, t.trace_id
