-- Question: What is the critical path bound by?
-- Reading: Shares of the path of each trace: shorten the largest. Read `path-caveats` with it. A wait for the GPU
-- inside a call is not a saving on the CPU.
SELECT
    coalesce(t.job, t.file) AS job, t.rank,
    s.bound_by, s.n_edges, round(s.duration_ns / 1e6, 2) AS path_ms, round(s.percent, 1) AS percent
FROM critical_path_summary AS s
JOIN traces AS t ON s.trace_id = t.trace_id
WHERE s.window_id = 'full'
ORDER BY job, t.rank, s.duration_ns DESC, s.bound_by, t.trace_id
