-- Question: Which operators and source lines do the kernels of torch.compile come from?
-- Reading: For traces ingested with provenance (`INDUCTOR_PROVENANCE=1 TORCH_TRACE=…`). NULL: the provenance does not
-- record the value, or several compiled graphs use the name with different values (`n_entries`; 0: the name is missing
-- from the provenance).
SELECT
    coalesce(t.job, t.file) AS job, t.rank,
    p.name, p.side, p.n_calls, round(p.duration_ns / 1e6, 3) AS total_ms, p.operators, p.source_lines,
    p.n_entries, p.confidence
FROM kernel_provenance AS p
JOIN traces AS t ON t.trace_id = p.trace_id
ORDER BY p.duration_ns DESC, job, t.rank, p.name, t.trace_id
