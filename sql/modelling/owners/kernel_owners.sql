-- One row: a GPU activity, launched or run by a graph replay, with the operator, module and layer that it belongs to.
-- How: op_kernels and the modules around the launch; for graph replays, graph_kernels. Nothing is interpolated.
-- check: unique(trace_id, event_id)
WITH inside AS (
    SELECT trace_id, event_id, name FROM _work_modules WHERE is_innermost
)
SELECT
    k.trace_id,  -- The trace.
    k.event_id,  -- The GPU work's position in traceEvents.
    o.op_event_id,  -- The operator in op_work; NULL where the operator's run is unknown.
    -- Name of the operator; NULL where it is unknown. For a replay, it is never the operator that launched the graph.
    CASE WHEN g.event_id IS NULL THEN w.op ELSE g.op END AS op,
    -- Innermost module of the launch, or for a replay of the capture; in the backward pass, the module of the forward;
    -- NULL where there is none.
    CASE WHEN g.event_id IS NULL THEN m.name ELSE g.module END AS module,
    -- Number of the repeating block in the replay, from 0, as graph_kernels.repetition: a guess at the layer; NULL
    -- outside of graphs.
    g.repetition AS layer,
    -- Source of operator and module: launch, or for a replay annotation, capture, eager or repetition (as in
    -- graph_kernels); NULL where nothing is known.
    CASE
        WHEN g.event_id IS NOT NULL THEN g.source
        WHEN w.op IS NOT NULL OR m.name IS NOT NULL THEN 'launch'
    END AS source,
    -- 1 for launch, else as in graph_kernels; NULL as source.
    CASE
        WHEN g.event_id IS NOT NULL THEN g.confidence
        WHEN w.op IS NOT NULL OR m.name IS NOT NULL THEN 1e0
    END AS confidence,
    g.event_id IS NOT NULL AS is_replay,  -- True if a replay of a CUDA or HIP graph ran the activity.
    k.duration_ns  -- Duration of the activity, ns.
FROM kernels AS k
LEFT JOIN op_kernels AS o ON o.trace_id = k.trace_id AND o.event_id = k.event_id AND o.source IS NOT NULL
LEFT JOIN op_work AS w ON w.trace_id = o.trace_id AND w.event_id = o.op_event_id
LEFT JOIN inside AS m ON m.trace_id = k.trace_id AND m.event_id = k.event_id
LEFT JOIN graph_kernels AS g ON g.trace_id = k.trace_id AND g.event_id = k.event_id
