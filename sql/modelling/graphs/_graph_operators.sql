-- One row: a GPU activity of a sequence whose operator or module is known, because all calls that may have recorded the
-- work agree.
-- check: unique(trace_id, sequence_id, ordinal)
WITH agreed AS (
    SELECT
        trace_id, sequence_id, ordinal,
        CASE WHEN count(op) = count(*) AND count(DISTINCT op) = 1 THEN min(op) END AS op,
        CASE
            WHEN count(op) = count(*) AND count(DISTINCT op) = 1
                AND count(dims) = count(*) AND count(DISTINCT dims) = 1 THEN min(dims)
        END AS dims,
        CASE WHEN count(module) = count(*) AND count(DISTINCT module) = 1 THEN min(module) END AS module,
        CASE
            WHEN count(op) = count(*) AND count(DISTINCT op) = 1
                AND count(DISTINCT op_ordinal) = 1 AND count(DISTINCT op_n_kernels) = 1 THEN min(op_ordinal)
        END AS op_ordinal,
        count(dims) = count(*) AND count(DISTINCT dims) = 1
        AND count(DISTINCT coalesce(types, '')) = 1 AND count(DISTINCT coalesce(concrete, '')) = 1 AS is_one_call,
        min(types) AS types, min(concrete) AS concrete
    FROM _graph_recordings
    GROUP BY trace_id, sequence_id, ordinal
),
ranked AS (
    SELECT
        trace_id, sequence_id, ordinal, how, confidence, capture_trace_id, call_event_id,
        row_number() OVER (
            PARTITION BY trace_id, sequence_id, ordinal
            ORDER BY
                confidence DESC, CASE WHEN capture_trace_id = trace_id THEN 0 ELSE 1 END, capture_trace_id,
                place_id DESC, call_event_id
        ) AS choice
    FROM _graph_recordings
)
SELECT
    a.trace_id,  -- The trace with the replays.
    a.sequence_id,  -- The sequence.
    a.ordinal,  -- Position in the sequence, from 0.
    a.op,  -- The operator; NULL where the calls do not agree.
    a.dims,  -- Shapes of the operator's arguments, JSON; NULL where the calls do not agree.
    a.module,  -- The module; NULL where the calls do not agree.
    -- First position in the sequence of the same run of the operator; NULL where the calls do not agree on its work.
    a.op_ordinal,
    -- Shapes of the arguments, JSON, for formulas; NULL where the calls do not agree in shapes, types and literals.
    CASE WHEN a.is_one_call THEN a.dims END AS call_dims,
    CASE WHEN a.is_one_call THEN a.types END AS call_types,  -- NULL as call_dims, or where types were not recorded.
    CASE WHEN a.is_one_call THEN a.concrete END AS call_concrete,  -- NULL as call_dims, or where the writer has none.
    r.how,  -- capture or eager: the best source of operator and module.
    r.confidence,  -- As in graph_kernels.
    r.capture_trace_id,  -- The trace with the best such call.
    r.call_event_id  -- The best such call.
FROM agreed AS a
JOIN ranked AS r
    ON r.trace_id = a.trace_id AND r.sequence_id = a.sequence_id AND r.ordinal = a.ordinal AND r.choice = 1
WHERE a.op IS NOT NULL OR a.module IS NOT NULL
