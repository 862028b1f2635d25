-- Question: Which execution traces are there, and which profiler trace does each belong to?
-- Reading: One row per pair. If `trace_id` is NULL, the folder has no profiler trace of that rank, or several execution
-- traces match it. In the latter case, pass the file with `--execution-trace`.
SELECT m.path, m.rank, e.n_operators, p.job, m.trace_id, p.file AS trace_file, m.matched_by
FROM execution_trace_matches AS m
JOIN execution_traces AS e ON e.execution_trace_id = m.execution_trace_id
LEFT JOIN traces AS p ON p.trace_id = m.trace_id
ORDER BY m.path, m.trace_id
