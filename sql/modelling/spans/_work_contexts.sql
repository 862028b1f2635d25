-- One row: a launch of GPU work, or a forward operator with a backward, and its position in the backward pass.
-- How: go up the stack to the first backward operator. A module on the way means that the forward is recomputed.
-- check: unique(trace_id, event_id)
WITH lowest AS (
    SELECT a.trace_id, a.event_id, min(a.height) AS height
    FROM _host_ancestors AS a
    JOIN backward_links AS b ON b.trace_id = a.trace_id AND b.backward_event_id = a.ancestor_id
    GROUP BY a.trace_id, a.event_id
),
recomputed AS (
    SELECT a.trace_id, a.event_id, max(a.height) AS height
    FROM lowest AS f
    JOIN _host_ancestors AS a ON a.trace_id = f.trace_id AND a.event_id = f.event_id AND a.height < f.height
    JOIN _span_events AS s ON s.trace_id = a.trace_id AND s.event_id = a.ancestor_id AND s.kind = 'module'
    GROUP BY a.trace_id, a.event_id
),
outermost AS (
    SELECT r.trace_id, r.event_id, s.name
    FROM recomputed AS r
    JOIN _host_ancestors AS a ON a.trace_id = r.trace_id AND a.event_id = r.event_id AND a.height = r.height
    JOIN _span_events AS s ON s.trace_id = a.trace_id AND s.event_id = a.ancestor_id
)
SELECT
    f.trace_id,  -- The trace.
    f.event_id,  -- The launch or forward operator; without a backward operator around it, it has no row.
    b.backward_event_id,  -- Innermost backward operator around the event.
    f.height,  -- Height of that operator above the event.
    b.forward_event_id,  -- Forward operator of the backward operator; NULL if it is not in the trace.
    b.how,  -- Source of forward_event_id: flow or sequence.
    o.name AS recomputed_module  -- Outermost module inside the backward operator; NULL where nothing is recomputed.
FROM lowest AS f
JOIN _host_ancestors AS a ON a.trace_id = f.trace_id AND a.event_id = f.event_id AND a.height = f.height
JOIN backward_links AS b ON b.trace_id = a.trace_id AND b.backward_event_id = a.ancestor_id
LEFT JOIN outermost AS o ON o.trace_id = f.trace_id AND o.event_id = f.event_id
