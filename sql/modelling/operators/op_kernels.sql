-- One row: a GPU activity and the operator it belongs to.
-- How: the operator of the launch call (_call_operators). For graph replays, the captured operator, as far as
-- graph_kernels identifies it.
-- check: unique(trace_id, event_id)
SELECT
    k.trace_id,  -- The trace.
    k.event_id,  -- The GPU work's position in traceEvents.
    -- The operator, as numbered in op_work: its position in traceEvents, or if a graph replay repeated it, the position
    -- of its first GPU activity there. For other work of a replay, the operator that launched the graph. NULL where
    -- there is none.
    coalesce(g.run_id, o.op_event_id) AS op_event_id,
    -- no_launch: the launch call is not in the trace; graph: a CUDA or HIP graph launched the work, and the captured
    -- operator is unknown; launch_without_op: the launch ran outside of operators; else NULL.
    CASE
        WHEN g.run_id IS NOT NULL THEN NULL
        WHEN k.launch_event_id IS NULL THEN 'no_launch'
        WHEN k.graph_node IS NOT NULL OR contains(l.name, 'GraphLaunch') THEN 'graph'
        WHEN o.op_event_id IS NULL THEN 'launch_without_op'
    END AS not_modelled,
    k.duration_ns,  -- Duration of the activity, ns.
    -- Source of the operator: launch, or for a graph replay capture or eager (as in graph_kernels); NULL where
    -- not_modelled is set.
    CASE
        WHEN g.run_id IS NOT NULL THEN g.source
        WHEN k.graph_node IS NOT NULL OR contains(l.name, 'GraphLaunch') OR o.op_event_id IS NULL THEN NULL
        ELSE 'launch'
    END AS source,
    -- 1 for launch, else as in graph_kernels; NULL as source.
    CASE
        WHEN g.run_id IS NOT NULL THEN g.confidence
        WHEN k.graph_node IS NOT NULL OR contains(l.name, 'GraphLaunch') OR o.op_event_id IS NULL THEN NULL
        ELSE 1e0
    END AS confidence
FROM kernels AS k
LEFT JOIN events AS l ON l.trace_id = k.trace_id AND l.event_id = k.launch_event_id
LEFT JOIN _call_operators AS o ON o.trace_id = k.trace_id AND o.event_id = k.launch_event_id
LEFT JOIN _graph_ops AS g ON g.trace_id = k.trace_id AND g.event_id = k.event_id
