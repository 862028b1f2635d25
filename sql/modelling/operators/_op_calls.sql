-- One row: an operator instance that GPU work belongs to, with its recorded arguments.
-- How: the work of op_kernels summed by operator. Work of a graph replay has the arguments of the captured call. Calls
-- of one operator with equal arguments share a shape.
WITH owners AS (
    SELECT
        trace_id, op_event_id, count(*) AS n_kernels, TRY_CAST(sum(duration_ns) AS BIGINT) AS gpu_ns,
        bool_or(coalesce(not_modelled = 'graph', FALSE)) AS is_graph, min(source) AS source,
        min(confidence) AS confidence
    FROM op_kernels
    WHERE op_event_id IS NOT NULL
    GROUP BY trace_id, op_event_id
),
runs AS (
    SELECT trace_id, run_id, op, dims, types, concrete FROM _graph_ops WHERE event_id = run_id
),
calls AS (
    SELECT
        o.trace_id, o.op_event_id, e.name, o.n_kernels, o.gpu_ns, o.is_graph, o.source, o.confidence,
        coalesce(e.args ->> '$."Input Dims"', e.args ->> '$."Input dims"') AS dims,
        e.args ->> '$."Input type"' AS types,
        coalesce(e.args ->> '$."Concrete Inputs"', e.args ->> '$."Concrete inputs"') AS concrete
    FROM owners AS o
    JOIN events AS e ON e.trace_id = o.trace_id AND e.event_id = o.op_event_id
    LEFT JOIN runs AS r ON r.trace_id = o.trace_id AND r.run_id = o.op_event_id
    WHERE r.run_id IS NULL
    UNION ALL
    SELECT
        o.trace_id, o.op_event_id, r.op, o.n_kernels, o.gpu_ns, o.is_graph, o.source, o.confidence,
        r.dims, r.types, r.concrete
    FROM owners AS o
    JOIN runs AS r ON r.trace_id = o.trace_id AND r.run_id = o.op_event_id
)
SELECT
    trace_id,  -- The trace.
    op_event_id AS event_id,  -- The operator, as in op_kernels.
    name AS op,  -- Name of the operator.
    n_kernels,  -- GPU activities that belong to the operator.
    gpu_ns,  -- Summed duration of these activities, ns.
    is_graph,  -- True if the operator launched a CUDA or HIP graph.
    source,  -- launch, capture or eager, as in op_kernels; NULL if the operator only launched a graph.
    confidence,  -- As in op_kernels; NULL as source.
    dims,  -- Input Dims, JSON; NULL where shapes were not recorded.
    types,  -- Input type, JSON; NULL where shapes were not recorded.
    concrete,  -- Concrete Inputs, JSON; NULL where the writer has none.
    -- Number of the combination of name and arguments, from 1.
    dense_rank() OVER (ORDER BY name, dims, types, concrete) AS shape_id
FROM calls
