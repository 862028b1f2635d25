-- One row: an operator instance that GPU work belongs to, with its arguments as the trace has them.
-- How: the work of op_kernels summed by operator; calls of one operator with equal arguments share a shape.
WITH owners AS (
    SELECT
        trace_id, op_event_id, count(*) AS n_kernels, TRY_CAST(sum(dur_ns) AS BIGINT) AS gpu_ns,
        bool_or(coalesce(not_modelled = 'graph', FALSE)) AS is_graph
    FROM op_kernels
    WHERE op_event_id IS NOT NULL
    GROUP BY trace_id, op_event_id
),
told AS (
    SELECT
        o.trace_id, o.op_event_id, e.name, o.n_kernels, o.gpu_ns, o.is_graph,
        coalesce(e.args ->> '$."Input Dims"', e.args ->> '$."Input dims"') AS dims,
        e.args ->> '$."Input type"' AS types,
        coalesce(e.args ->> '$."Concrete Inputs"', e.args ->> '$."Concrete inputs"') AS concrete
    FROM owners AS o
    JOIN events AS e ON e.trace_id = o.trace_id AND e.event_id = o.op_event_id
)
SELECT
    trace_id,  -- The trace.
    op_event_id AS event_id,  -- The operator's position in traceEvents.
    name AS op,  -- Its name.
    n_kernels,  -- Pieces of GPU work that belong to it.
    gpu_ns,  -- Their summed duration, ns.
    is_graph,  -- It launched a CUDA or HIP graph.
    dims,  -- Input Dims, JSON; NULL where shapes were not recorded.
    types,  -- Input type, JSON; NULL where shapes were not recorded.
    concrete,  -- Concrete Inputs, JSON; NULL where the writer has none.
    dense_rank() OVER (ORDER BY name, dims, types, concrete) AS shape_id  -- Number of its name and arguments, from 1.
FROM told
