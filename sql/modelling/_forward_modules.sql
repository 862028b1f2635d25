-- One row: a forward operator with a backward, and a module that it ran in.
-- How: the modules around it; where it is itself recomputed inside a backward operator, the modules inside that
-- operator, then those of that operator's forward above the outermost of them.
-- check: unique(trace_id, forward_event_id, module_event_id)
WITH forwards AS (
    SELECT DISTINCT trace_id, forward_event_id AS event_id FROM backward_links WHERE forward_event_id IS NOT NULL
),
around AS (
    SELECT a.trace_id, a.event_id, a.height, s.event_id AS module_event_id, s.name
    FROM _host_ancestors AS a
    JOIN _span_events AS s ON s.trace_id = a.trace_id AND s.event_id = a.ancestor_id AND s.kind = 'module'
    JOIN forwards AS f ON f.trace_id = a.trace_id AND f.event_id = a.event_id
    LEFT JOIN _work_contexts AS c ON c.trace_id = a.trace_id AND c.event_id = a.event_id
    WHERE c.event_id IS NULL OR a.height < c.height
),
-- A recomputed module is already in the chain where the hook that recomputes it belongs to an operator inside it.
beyond AS (
    SELECT
        c.trace_id, c.event_id, a.module_event_id, a.name, c.height + a.height AS height, c.recomputed_module,
        max(CASE WHEN a.name = c.recomputed_module THEN c.height + a.height END) OVER (
            PARTITION BY c.trace_id, c.event_id
        ) AS recomputed_height
    FROM _work_contexts AS c
    JOIN around AS a ON a.trace_id = c.trace_id AND a.event_id = c.forward_event_id
    JOIN forwards AS f ON f.trace_id = c.trace_id AND f.event_id = c.event_id
)
SELECT
    trace_id,  -- The trace.
    event_id AS forward_event_id,  -- The forward operator.
    module_event_id,  -- The module's call.
    name,  -- The module's name.
    height  -- Order on the way up: the innermost module has the lowest number.
FROM around
UNION ALL
SELECT trace_id, event_id, module_event_id, name, height
FROM beyond
WHERE recomputed_height IS NULL OR height > recomputed_height
