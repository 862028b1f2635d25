-- One row: a piece of GPU work and the operator it belongs to.
-- How: the operator of the call that launched it (_call_operators). Graphs: see graph_kernels.
-- check: unique(trace_id, event_id)
SELECT
    k.trace_id,  -- The trace.
    k.event_id,  -- The GPU work's position in traceEvents.
    o.op_event_id,  -- The operator; NULL where there is none.
    -- no_launch: the call that launched it is not in the trace; graph: a CUDA or HIP graph did, its operators ran when
    -- it was recorded (graph_kernels has them where they are known); launch_without_op; else NULL.
    CASE
        WHEN k.launch_event_id IS NULL THEN 'no_launch'
        WHEN k.graph_node IS NOT NULL OR contains(l.name, 'GraphLaunch') THEN 'graph'
        WHEN o.op_event_id IS NULL THEN 'launch_without_op'
    END AS not_modelled,
    k.dur_ns  -- Its duration, ns.
FROM kernels AS k
LEFT JOIN events AS l ON l.trace_id = k.trace_id AND l.event_id = k.launch_event_id
LEFT JOIN _call_operators AS o ON o.trace_id = k.trace_id AND o.event_id = k.launch_event_id
