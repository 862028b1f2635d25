-- Topic: Operators and modules
-- Question: How much of the GPU's time do the models of operators cover?
-- Reading: What `mfu` and `shapes-below-peak` can speak about. The rest is listed by reason: `graph_ms` ran in replays
-- of graphs whose capture the trace does not show; `graph_known_ms` did too, but its operators are known.
SELECT
    t.job, t.rank, c.n_ops, c.n_ops_modelled, round(100 * c.coverage, 1) AS covered_percent,
    round(c.op_not_modelled_ns / 1e6, 2) AS no_model_ms, round(c.no_shapes_ns / 1e6, 2) AS no_shapes_ms,
    round(c.graph_ns / 1e6, 2) AS graph_ms, round(c.graph_known_ns / 1e6, 2) AS graph_known_ms,
    round((c.no_launch_ns + c.launch_without_op_ns) / 1e6, 2) AS no_operator_ms
FROM op_work_coverage AS c
JOIN traces AS t ON c.trace_id = t.trace_id
ORDER BY c.coverage, t.job, t.rank, t.trace_id
