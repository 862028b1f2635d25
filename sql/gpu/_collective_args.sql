-- One row: a communication kernel with the arguments that describe its collective.
-- How: the kernel's own arguments if they name a collective, else the arguments of the record_param_comms event with
-- the kernel's External id.
WITH own AS (
    SELECT k.trace_id, k.event_id, e.args, e.external_id
    FROM kernels AS k
    JOIN events AS e ON e.trace_id = k.trace_id AND e.event_id = k.event_id
    WHERE k.class = 'COMMUNICATION' AND k.cat = 'kernel'
),
recorded AS (
    SELECT trace_id, external_id, args
    FROM events
    WHERE name = 'record_param_comms' AND external_id IS NOT NULL AND args LIKE '%"Collective name"%'
    QUALIFY row_number() OVER (PARTITION BY trace_id, external_id ORDER BY event_id) = 1
)
SELECT
    o.trace_id,  -- The trace.
    o.event_id,  -- The kernel's position in traceEvents.
    -- The arguments, as JSON; NULL if neither event names a collective.
    CASE WHEN o.args LIKE '%"Collective name"%' THEN o.args ELSE r.args END AS args
FROM own AS o
LEFT JOIN recorded AS r ON r.trace_id = o.trace_id AND r.external_id = o.external_id
