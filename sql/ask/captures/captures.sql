-- Question: Which captures are in the lake, and can they be compared?
-- Reading: One row per capture. `left_out` traces are duplicates, have no rank or belong to another job; table
-- `capture_ranks` contains the reason.
SELECT
    c.capture_id, c.job, c.started_at, c.n_ranks, c.world_size, c.n_traces,
    count(r.trace_id) FILTER (WHERE r.left_out_reason IS NOT NULL) AS left_out
FROM captures AS c
LEFT JOIN capture_ranks AS r ON c.capture_id = r.capture_id
GROUP BY c.capture_id, c.job, c.started_at, c.n_ranks, c.world_size, c.n_traces
ORDER BY c.started_at DESC, c.capture_id
