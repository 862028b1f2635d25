-- One row: an operator whose GPU work belongs to a span in a phase, or to all spans of a name in it.
-- How: the work of span_gpu_work by operator; work in several spans of a name counts once.
WITH work AS (
    SELECT
        w.trace_id, w.span_id, s.kind, s.name, w.phase, w.event_id, o.op_event_id, o.duration_ns
    FROM span_gpu_work AS w
    JOIN spans AS s ON s.trace_id = w.trace_id AND s.span_id = w.span_id
    JOIN op_kernels AS o ON o.trace_id = w.trace_id AND o.event_id = w.event_id
    WHERE o.op_event_id IS NOT NULL
),
named AS (
    SELECT DISTINCT trace_id, kind, name, phase, event_id, op_event_id, duration_ns FROM work
    UNION ALL
    SELECT g.trace_id, g.kind, g.name, 'replay', g.event_id, o.op_event_id, o.duration_ns
    FROM _graph_spans AS g
    JOIN op_kernels AS o ON o.trace_id = g.trace_id AND o.event_id = g.event_id
    WHERE o.op_event_id IS NOT NULL
),
recomputed AS (
    SELECT DISTINCT trace_id, op_event_id FROM work WHERE phase = 'recompute'
),
scoped AS (
    SELECT trace_id, CAST(span_id AS VARCHAR) AS scope, phase, op_event_id, sum(duration_ns) AS gpu_ns
    FROM work
    GROUP BY trace_id, span_id, phase, op_event_id
    UNION ALL
    SELECT trace_id, kind || ' ' || name, phase, op_event_id, sum(duration_ns)
    FROM named
    GROUP BY trace_id, kind, name, phase, op_event_id
)
SELECT
    s.trace_id,  -- The trace.
    s.scope,  -- The span's number, or kind and name.
    s.phase,  -- Phase, as in span_names.
    s.op_event_id,  -- The operator.
    TRY_CAST(s.gpu_ns AS BIGINT) AS gpu_ns,  -- Its GPU time in the span and phase, ns.
    r.op_event_id IS NOT NULL AS is_recompute  -- It recomputes a module's forward.
FROM scoped AS s
LEFT JOIN recomputed AS r ON r.trace_id = s.trace_id AND r.op_event_id = s.op_event_id
