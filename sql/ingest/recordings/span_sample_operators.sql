-- One row: an operator with its arguments, called in a span or in spans inside it, with the work of one call. The span
-- is in a sampled step in which operators were counted (a census).
-- How: apply the formulas of op_work to the arguments, which the recorder writes in Kineto's format. Views and other
-- operators that move no data are excluded.
-- scope: recording
SELECT
    CAST(s.recording_id AS VARCHAR) AS recording_id,  -- The recording, in recordings.
    CAST(s.batch_id AS VARCHAR) AS batch_id,  -- Ingest run that wrote it.
    CAST(s.step AS BIGINT) AS step,  -- Number of the step in its loop.
    CAST(s.span_id AS BIGINT) AS span_id,  -- The span, in span_samples.
    CAST(s.op AS VARCHAR) AS op,  -- Name of the operator.
    -- Number of such calls in the span and in spans inside it; never add up nested spans.
    CAST(s.n_calls AS BIGINT) AS n_calls,
    CAST(s.n_calls_own AS BIGINT) AS n_calls_own,  -- Number of such calls outside nested spans.
    CAST(s.n_calls_recompute AS BIGINT) AS n_calls_recompute,  -- Number of such calls in a recomputed forward.
    w.family,  -- As in op_work; NULL without a model.
    w.dtype,  -- Type that decides the peak; NULL without a model, or for a type that is unknown.
    w.flops_matrix,  -- Matrix operations of one call; NULL without a model.
    w.flops_uncausal,  -- The same without a causal mask.
    w.flops_vector,  -- Other operations of one call.
    w.bytes,  -- Minimum traffic of one call, bytes; NULL without a model, or if an element's size is unknown.
    w.not_modelled,  -- Reason why there is no model: op_not_modelled, no_shapes or bad_args; else NULL.
    CAST(s.dims AS VARCHAR) AS dims,  -- Shapes of its arguments, JSON.
    CAST(s.types AS VARCHAR) AS types,  -- Types of its arguments, JSON.
    CAST(s.concrete AS VARCHAR) AS concrete  -- Literal arguments, JSON.
FROM _staged_span_sample_operators AS s
LEFT JOIN _staged_operator_work AS w
    ON w.op = s.op AND w.dims IS NOT DISTINCT FROM s.dims AND w.types IS NOT DISTINCT FROM s.types
        AND w.concrete IS NOT DISTINCT FROM s.concrete
