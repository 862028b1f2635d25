-- Question: Which operators, modules and layers does the GPU work on the critical path belong to?
-- Reading: GPU work only, including graph replays. GPU work without an operator was launched outside operators, or by a
-- replay whose capture the trace does not contain. `percent` is relative to the GPU work's time on the path.
SELECT
    coalesce(t.job, t.file) AS job, t.rank, p.op, p.module, p.layer, p.source, sum(p.n_events) AS n,
    round(sum(p.duration_ns) / 1e6, 3) AS path_ms,
    round(
        100 * sum(p.duration_ns)
        / nullif(sum(sum(p.duration_ns)) OVER (PARTITION BY coalesce(t.job, t.trace_id), t.rank), 0), 1
    ) AS percent
FROM critical_path_by_operator AS p
JOIN traces AS t ON p.trace_id = t.trace_id
WHERE p.window_id = 'full'
GROUP BY coalesce(t.job, t.file), coalesce(t.job, t.trace_id), t.rank, p.op, p.module, p.layer, p.source
ORDER BY job, t.rank, sum(p.duration_ns) DESC, p.op, p.module, p.layer, p.source, coalesce(t.job, t.trace_id)
