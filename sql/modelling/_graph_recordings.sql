-- One row: a piece of GPU work of a sequence and a call that recorded it, or ran the same outside graphs, with the
-- operator and module around that call.
-- check: unique(trace_id, sequence_id, ordinal, how, capture_trace_id, place_id, call_event_id)
WITH calls AS (
    SELECT
        m.trace_id, m.sequence_id, c.ordinal, 'capture' AS how,
        CASE WHEN m.is_named THEN 9e-1 ELSE 7e-1 END AS confidence,
        m.capture_trace_id, m.capture_id AS place_id, c.event_id AS call_event_id
    FROM _capture_matches AS m
    JOIN _capture_calls AS c ON c.trace_id = m.capture_trace_id AND c.capture_id = m.capture_id
    UNION ALL
    SELECT
        m.trace_id, m.sequence_id, e.ordinal - m.first_ordinal, 'eager', 8e-1,
        m.capture_trace_id, m.first_ordinal, e.launch_event_id
    FROM _eager_matches AS m
    JOIN _graph_sequences AS s
        ON s.trace_id = m.trace_id AND s.sequence_id = m.sequence_id AND s.replay_id = m.sequence_id
    JOIN _eager_kernels AS e
        ON e.trace_id = m.capture_trace_id AND e.device = m.device AND e.ordinal >= m.first_ordinal
            AND e.ordinal < m.first_ordinal + s.n_nodes
),
-- No row_number() = 1: DuckDB 1.5.6 turns that into an aggregate, and fails where it knows that no span is a module.
modules AS (
    SELECT a.trace_id, a.event_id, a.height, s.name
    FROM (SELECT DISTINCT capture_trace_id, call_event_id FROM calls) AS c
    JOIN _host_ancestors AS a ON a.trace_id = c.capture_trace_id AND a.event_id = c.call_event_id
    JOIN _span_events AS s ON s.trace_id = a.trace_id AND s.event_id = a.ancestor_id AND s.kind = 'module'
),
innermost AS (
    SELECT trace_id, event_id, min(height) AS height
    FROM modules
    GROUP BY trace_id, event_id
),
around AS (
    SELECT m.trace_id, m.event_id, m.name
    FROM modules AS m
    JOIN innermost AS i ON i.trace_id = m.trace_id AND i.event_id = m.event_id AND i.height = m.height
)
SELECT
    c.trace_id,  -- The trace with the replays.
    c.sequence_id,  -- The sequence.
    c.ordinal,  -- Place in the sequence, from 0.
    c.how,  -- capture or eager.
    c.confidence,  -- As in graph_kernels.
    c.capture_trace_id,  -- The trace with the call.
    c.place_id,  -- Tells captures, and places outside graphs, apart.
    c.call_event_id,  -- The call.
    e.name AS op,  -- Operator around it; NULL where there is none.
    -- Shapes of the operator's arguments, JSON; NULL where they were not recorded.
    coalesce(e.args ->> '$."Input Dims"', e.args ->> '$."Input dims"') AS dims,
    e.args ->> '$."Input type"' AS types,  -- Their types, JSON; NULL as dims.
    -- Their literals, JSON; NULL as dims.
    coalesce(e.args ->> '$."Concrete Inputs"', e.args ->> '$."Concrete inputs"') AS concrete,
    -- First place in the sequence of the same run of the operator; NULL without operator.
    CASE
        WHEN o.op_event_id IS NOT NULL
            THEN
            min(c.ordinal) OVER (
                PARTITION BY c.trace_id, c.sequence_id, c.how, c.capture_trace_id, c.place_id, o.op_event_id
            )
    END AS op_ordinal,
    -- Pieces of GPU work of that run; NULL without operator.
    CASE
        WHEN o.op_event_id IS NOT NULL
            THEN
            count(*) OVER (
                PARTITION BY c.trace_id, c.sequence_id, c.how, c.capture_trace_id, c.place_id, o.op_event_id
            )
    END AS op_n_kernels,
    m.name AS module  -- Innermost module around the call, as in spans; NULL where there is none.
FROM calls AS c
LEFT JOIN _call_operators AS o ON o.trace_id = c.capture_trace_id AND o.event_id = c.call_event_id
LEFT JOIN events AS e ON e.trace_id = o.trace_id AND e.event_id = o.op_event_id
LEFT JOIN around AS m ON m.trace_id = c.capture_trace_id AND m.event_id = c.call_event_id
