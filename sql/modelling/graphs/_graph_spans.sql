-- One row: a GPU activity of a graph replay, and a module or annotation around it when the graph was captured.
-- How: the names of modules and annotations around every call that may have recorded the work. The program's own name
-- for the kernel (torch.cuda.graph_annotations) counts as an annotation.
-- check: unique(trace_id, event_id, kind, name)
WITH found AS (
    SELECT trace_id, sequence_id, ordinal, how, confidence, capture_trace_id, place_id, call_event_id
    FROM _graph_recordings
),
counted AS (
    SELECT trace_id, sequence_id, ordinal, count(*) AS n, max(confidence) AS confidence
    FROM found
    GROUP BY trace_id, sequence_id, ordinal
),
best AS (
    SELECT DISTINCT f.trace_id, f.sequence_id, f.ordinal, f.how
    FROM found AS f
    JOIN counted AS c
        ON c.trace_id = f.trace_id AND c.sequence_id = f.sequence_id AND c.ordinal = f.ordinal
            AND c.confidence = f.confidence
),
around AS (
    SELECT DISTINCT
        f.trace_id, f.sequence_id, f.ordinal, f.how, f.capture_trace_id, f.place_id, f.call_event_id,
        s.kind, s.name, s.family
    FROM found AS f
    JOIN _host_ancestors AS a ON a.trace_id = f.capture_trace_id AND a.event_id = f.call_event_id
    JOIN _span_events AS s
        ON s.trace_id = a.trace_id AND s.event_id = a.ancestor_id AND s.kind IN ('module', 'annotation')
),
agreed AS (
    SELECT a.trace_id, a.sequence_id, a.ordinal, a.kind, a.name, a.family, c.confidence
    FROM around AS a
    JOIN counted AS c ON c.trace_id = a.trace_id AND c.sequence_id = a.sequence_id AND c.ordinal = a.ordinal
    GROUP BY a.trace_id, a.sequence_id, a.ordinal, a.kind, a.name, a.family, c.n, c.confidence
    HAVING count(*) = c.n
),
named AS (
    SELECT n.trace_id, n.event_id, g.kind, g.name, g.family, b.how AS source, g.confidence
    FROM _graph_nodes AS n
    JOIN _graph_sequences AS s ON s.trace_id = n.trace_id AND s.replay_id = n.replay_id
    JOIN agreed AS g ON g.trace_id = s.trace_id AND g.sequence_id = s.sequence_id AND g.ordinal = n.ordinal
    JOIN best AS b ON b.trace_id = g.trace_id AND b.sequence_id = g.sequence_id AND b.ordinal = g.ordinal
    UNION ALL
    SELECT trace_id, event_id, 'annotation', annotation, annotation, 'annotation', 1e0
    FROM _graph_nodes
    WHERE annotation IS NOT NULL
),
ranked AS (
    SELECT
        *,
        row_number() OVER (
            PARTITION BY trace_id, event_id, kind, name ORDER BY confidence DESC, source
        ) AS choice
    FROM named
)
SELECT
    trace_id,  -- The trace with the replay.
    event_id,  -- The GPU work's position in traceEvents.
    kind,  -- module or annotation.
    name,  -- Name, as in spans.
    family,  -- The name without its number, as in spans.
    source,  -- capture, eager or annotation, as in graph_kernels.
    confidence  -- As in graph_kernels.
FROM ranked
WHERE choice = 1
