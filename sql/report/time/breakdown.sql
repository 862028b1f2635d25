-- Question: What does the time of each GPU divide into?
-- Reading: One row per device, for the time from its first to its last GPU work.
SELECT t.rank, t.path, x.*
FROM temporal_breakdown AS x
JOIN traces AS t ON x.trace_id = t.trace_id
WHERE x.device IS NOT NULL
ORDER BY t.rank NULLS LAST, t.path, x.device
