-- Question: How much of the GPU's time do the models of operators cover?
-- Reading: One row per part of the GPU's time; the rows of a trace add up to it. `modelled` is the part that `mfu` and
-- `shapes-below-peak` cover. `replayed` is the part of a row that graph replays ran. The other rows name the reason for
-- missing coverage. `graph` ran in replays of graphs whose operators are unknown (`told_by` names the inputs that would
-- show them), or is other work of operators that launch such graphs. `no_launch` has no launch in the trace,
-- `launch_without_op` was launched outside of operators, `op_not_modelled` has no formula, and `no_shapes` and
-- `bad_args` have no usable arguments for the formula.
-- Words: MFU
WITH parts AS (
    SELECT
        o.trace_id, o.duration_ns,
        coalesce(CASE WHEN w.event_id IS NULL THEN o.not_modelled ELSE w.not_modelled END, 'modelled') AS part,
        CASE WHEN g.event_id IS NOT NULL THEN o.duration_ns ELSE 0 END AS replay_ns
    FROM op_kernels AS o
    LEFT JOIN graph_kernels AS g ON g.trace_id = o.trace_id AND g.event_id = o.event_id
    LEFT JOIN op_work AS w ON w.trace_id = o.trace_id AND w.event_id = o.op_event_id
)
SELECT
    coalesce(t.job, t.file) AS job, t.rank, p.part, count(*) AS n_kernels, round(sum(p.duration_ns) / 1e6, 3) AS gpu_ms,
    round(100 * sum(p.duration_ns) / nullif(sum(sum(p.duration_ns)) OVER (PARTITION BY t.trace_id), 0), 1) AS percent,
    round(sum(p.replay_ns) / 1e6, 3) AS replayed_ms,
    CASE p.part
        WHEN 'graph' THEN 'a trace of the capture or the warm-up: tracelake graphs TRACE --capture-trace FILE'
        WHEN 'no_launch' THEN 'a profile that begins earlier'
        WHEN 'no_shapes' THEN 'record_shapes=True'
    END AS told_by,
    t.trace_id
FROM parts AS p
JOIN traces AS t ON p.trace_id = t.trace_id
GROUP BY coalesce(t.job, t.file), t.rank, t.trace_id, p.part
ORDER BY job, t.rank, t.trace_id, sum(p.duration_ns) DESC, p.part
