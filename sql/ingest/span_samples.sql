-- One row: a span of a sampled training step: the step, or a module's forward, backward or recomputed forward.
-- scope: recording
-- check: unique(recording_id, step, span_id)
SELECT
    CAST(recording_id AS VARCHAR) AS recording_id,  -- The recording, in recordings.
    CAST(batch_id AS VARCHAR) AS batch_id,  -- Ingest run that wrote it.
    CAST(step AS BIGINT) AS step,  -- Number of the step in its loop, from 0.
    CAST(span_id AS BIGINT) AS span_id,  -- The span within its step.
    CAST(parent_id AS BIGINT) AS parent_id,  -- The span it lies in; NULL for the step.
    CAST(depth AS BIGINT) AS depth,  -- How deep it lies, 0 for the step.
    CAST(name AS VARCHAR) AS name,  -- Module, as model.named_modules() has it; the model's class for the whole of it; step.
    CAST(class AS VARCHAR) AS class,  -- Its class.
    CAST(phase AS VARCHAR) AS phase,  -- step, forward, backward, or recompute: a forward within a backward pass.
    CAST(tid AS BIGINT) AS tid,  -- Thread.
    CAST(ts_ns AS BIGINT) AS ts_ns,  -- Start, ns since the Unix epoch.
    CAST(dur_ns AS BIGINT) AS dur_ns,  -- Duration by its clock, ns: never compare those of different clocks.
    CAST(host_dur_ns AS BIGINT) AS host_dur_ns,  -- Duration of the host's calls, ns: the same on the CPU; how long launching took on a GPU.
    CAST(input_shapes AS VARCHAR) AS input_shapes,  -- Shapes of the module's input tensors, as JSON lists, null for one that cannot be told; of a step, its first module's.
    CAST(input_dtypes AS VARCHAR) AS input_dtypes,  -- Their types, as a JSON list.
    CAST(clock AS VARCHAR) AS clock,  -- What the duration is of. host: the work, which is done when the call returns (CPU); cuda: the work, by events on the stream; host_calls: the host's calls only, the work ran elsewhere at its own time.
    CAST(is_failed AS BOOLEAN) AS is_failed,  -- It ended with an exception.
    coalesce(CAST(is_census AS BOOLEAN), FALSE) AS is_census  -- Its operators were counted meanwhile (span_sample_operators): its times are too long.
FROM _staged_span_samples
