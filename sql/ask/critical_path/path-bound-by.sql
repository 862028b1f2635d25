-- Question: What is the critical path bound by?
-- Reading: Shares of the path of each trace. Shorten the largest first. Also read `path-caveats`. A call's wait for the
-- GPU cannot be saved on the CPU.
SELECT
    coalesce(t.job, t.file) AS job, t.rank,
    s.bound_by, s.n_edges, round(s.duration_ns / 1e6, 2) AS path_ms, round(s.percent, 1) AS percent
FROM critical_path_summary AS s
JOIN traces AS t ON s.trace_id = t.trace_id
WHERE s.window_id = 'full'
ORDER BY job, t.rank, s.duration_ns DESC, s.bound_by, t.trace_id
