-- One row: a GPU activity and the operator it belongs to.
-- How: the operator of the call that launched it (_call_operators); for graph replays the operator that was captured,
-- as far as graph_kernels knows it.
-- check: unique(trace_id, event_id)
SELECT
    k.trace_id,  -- The trace.
    k.event_id,  -- The GPU work's position in traceEvents.
    -- The operator, as op_work numbers it: its position in traceEvents, or, where a graph replay ran it again, that of
    -- the first of its GPU work there. For other work of a replay the operator that launched the graph. NULL where
    -- there is none.
    coalesce(g.run_id, o.op_event_id) AS op_event_id,
    -- no_launch: the call that launched it is not in the trace; graph: a CUDA or HIP graph did, and which operator ran
    -- it at capture is unknown; launch_without_op; else NULL.
    CASE
        WHEN g.run_id IS NOT NULL THEN NULL
        WHEN k.launch_event_id IS NULL THEN 'no_launch'
        WHEN k.graph_node IS NOT NULL OR contains(l.name, 'GraphLaunch') THEN 'graph'
        WHEN o.op_event_id IS NULL THEN 'launch_without_op'
    END AS not_modelled,
    k.duration_ns,  -- Its duration, ns.
    -- What the operator is known from: launch, or capture or eager for a graph replay (as in graph_kernels); NULL where
    -- not_modelled says why it is not.
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
