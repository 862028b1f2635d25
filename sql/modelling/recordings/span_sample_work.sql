-- One row: a span of sampled steps with certain inputs and a type, with the work of its operators in that type,
-- including the spans inside it.
-- How: the operators of the first census with these inputs. Spans of other steps with the same name, phase and inputs
-- do the same work.
-- scope: lake
-- check: unique(recording_id, name, phase, input_shapes, input_dtypes, dtype)
WITH counted AS (
    SELECT
        recording_id, step, span_id, name, phase, input_shapes, input_dtypes,
        row_number() OVER (
            PARTITION BY recording_id, name, phase, input_shapes, input_dtypes ORDER BY step, span_id
        ) AS choice
    FROM span_samples
    WHERE is_census AND NOT is_failed
)
SELECT
    c.recording_id,  -- The recording, in recordings.
    c.name,  -- Module, or step.
    c.phase,  -- step, forward, backward or recompute.
    c.input_shapes,  -- Shapes of its inputs, as in span_samples.
    c.input_dtypes,  -- Types of these inputs.
    o.dtype,  -- Type that decides the peak; NULL for operators without a model or without a known type.
    CAST(coalesce(sum(o.n_calls), 0) AS BIGINT) AS n_ops,  -- Operators that ran, not counting views.
    -- Operators without a model.
    CAST(coalesce(sum(CASE WHEN o.not_modelled IS NOT NULL THEN o.n_calls END), 0) AS BIGINT) AS n_ops_not_modelled,
    -- Matrix operations, including those of a recomputed forward; NULL without a model.
    CAST(sum(o.n_calls * o.flops_matrix) AS BIGINT) AS flops_matrix,
    -- Matrix operations of a recomputed forward; NULL without a model.
    CAST(sum(o.n_calls_recompute * o.flops_matrix) AS BIGINT) AS flops_recompute,
    CAST(sum(o.n_calls * o.flops_vector) AS BIGINT) AS flops_vector,  -- Other operations; NULL without a model.
    -- Minimum traffic, bytes; NULL without a model, or if the traffic of any operator with a model is unknown.
    CASE
        WHEN count(o.bytes) = count(o.op) FILTER (WHERE o.not_modelled IS NULL)
            THEN CAST(sum(o.n_calls * o.bytes) AS BIGINT)
    END AS bytes
FROM counted AS c
LEFT JOIN span_sample_operators AS o ON o.recording_id = c.recording_id AND o.step = c.step AND o.span_id = c.span_id
WHERE c.choice = 1
GROUP BY c.recording_id, c.name, c.phase, c.input_shapes, c.input_dtypes, o.dtype
