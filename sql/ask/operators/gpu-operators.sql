-- Question: Which operators take the GPU's time, also in graph replays?
-- Reading: Rows add up to the time of all GPU work. GPU work without an operator was launched outside operators, or by
-- a replay whose capture the trace does not contain (`replay_percent`: the share that replays ran). `tracelake graphs`
-- can take the capture from another trace.
SELECT
    coalesce(t.job, t.file) AS job, t.rank, o.op, o.source, min(o.confidence) AS confidence, count(*) AS n_kernels,
    round(sum(o.duration_ns) / 1e6, 3) AS gpu_ms,
    round(
        100 * sum(o.duration_ns)
        / nullif(sum(sum(o.duration_ns)) OVER (PARTITION BY coalesce(t.job, t.trace_id), t.rank), 0), 1
    ) AS percent,
    round(
        100 * sum(CASE WHEN o.is_replay THEN o.duration_ns ELSE 0 END) / nullif(sum(o.duration_ns), 0), 1
    ) AS replay_percent
FROM kernel_owners AS o
JOIN traces AS t ON o.trace_id = t.trace_id
GROUP BY coalesce(t.job, t.file), coalesce(t.job, t.trace_id), t.rank, o.op, o.source
ORDER BY job, t.rank, sum(o.duration_ns) DESC, o.op, o.source, coalesce(t.job, t.trace_id)
