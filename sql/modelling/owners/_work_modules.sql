-- One row: a GPU activity and a module that it belongs to. The module is around its launch, around the forward of its
-- backward operator, or for a graph replay, around the capture.
-- How: span_gpu_work (without windows), and _graph_spans for replays.
-- check: unique(trace_id, event_id, name)
WITH found AS (
    SELECT
        w.trace_id, w.event_id, s.name, s.start_ns, s.end_ns, s.span_id,
        CASE w.phase WHEN 'recompute' THEN 0 WHEN 'fwd' THEN 1 ELSE 2 END AS turn
    FROM span_gpu_work AS w
    JOIN spans AS s ON s.trace_id = w.trace_id AND s.span_id = w.span_id AND s.kind = 'module'
    WHERE w.phase <> 'window'
),
ranked AS (
    SELECT
        trace_id, event_id, name,
        row_number() OVER (
            PARTITION BY trace_id, event_id ORDER BY turn, start_ns DESC, end_ns, span_id DESC
        ) AS place
    FROM found
),
named AS (
    SELECT trace_id, event_id, name, min(place) AS place FROM ranked GROUP BY trace_id, event_id, name
)
SELECT
    n.trace_id,  -- The trace.
    n.event_id,  -- The GPU work's position in traceEvents.
    n.name,  -- Name of the module, as in spans; for a replay also the program's name for this part of the graph.
    -- True for the innermost module; NULL for a replay, whose innermost module graph_kernels has.
    CASE WHEN g.event_id IS NULL THEN n.place = 1 END AS is_innermost
FROM named AS n
LEFT JOIN _graph_nodes AS g ON g.trace_id = n.trace_id AND g.event_id = n.event_id
UNION
SELECT trace_id, event_id, name, NULL
FROM _graph_spans
WHERE kind = 'module' OR source = 'annotation'
