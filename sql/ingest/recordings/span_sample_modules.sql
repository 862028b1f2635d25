-- One row: a module that was measured in a sampled step, whether or not it was called. A module without a row was not
-- measured in that step: a budget may allow only some of the modules, which take turns.
-- scope: recording
-- check: unique(recording_id, step, name)
SELECT
    CAST(recording_id AS VARCHAR) AS recording_id,  -- The recording, in recordings.
    CAST(batch_id AS VARCHAR) AS batch_id,  -- Ingest run that wrote it.
    CAST(step AS BIGINT) AS step,  -- Number of the step in its loop.
    CAST(name AS VARCHAR) AS name,  -- Name of the module, as in span_samples.
    -- Whether operators were counted in the step (span_sample_operators); all modules are measured then.
    CAST(is_census AS BOOLEAN) AS is_census,
    -- Number of its calls in the step, including recomputed forwards; 0 if it did not run. Calls of modules that were
    -- not measured are not counted.
    CAST(n_calls AS BIGINT) AS n_calls,
    -- Number of modules of the model in this step, measured or not.
    CAST(n_modules AS BIGINT) AS n_modules,
    -- Time that the recorder took on the host to install and run the hooks of the module in the step, ns.
    CAST(hook_ns AS BIGINT) AS hook_ns
FROM _staged_span_sample_modules
