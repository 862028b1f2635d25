-- One row: a GPU activity of a graph replay whose operator is known, and the run of the operator that it belongs to.
-- How: a replay repeats the captured work, so the work of one captured call of an operator is one run of it in each
-- replay.
-- check: unique(trace_id, event_id)
SELECT
    n.trace_id,  -- The trace with the replay.
    n.event_id,  -- The GPU work's position in traceEvents.
    -- The run, by the first of its activities in the file. No operator of the trace has this position.
    min(n.event_id) OVER (PARTITION BY n.trace_id, n.replay_id, o.op_ordinal) AS run_id,
    o.op,  -- Name of the operator.
    o.call_dims AS dims,  -- Shapes of the operator's arguments, JSON; NULL where they are unknown.
    o.call_types AS types,  -- Types of these arguments, JSON; NULL where they are unknown.
    o.call_concrete AS concrete,  -- Literals of these arguments, JSON; NULL where they are unknown.
    o.how AS source,  -- capture or eager, as in graph_kernels.
    o.confidence  -- As in graph_kernels.
FROM _graph_nodes AS n
JOIN _graph_sequences AS s ON s.trace_id = n.trace_id AND s.replay_id = n.replay_id
JOIN _graph_operators AS o
    ON o.trace_id = s.trace_id AND o.sequence_id = s.sequence_id AND o.ordinal = n.ordinal
WHERE o.op_ordinal IS NOT NULL
