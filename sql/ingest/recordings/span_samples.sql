-- One row: a span of a sampled training step: the step, a module's forward, backward or recomputed forward, or own code
-- (`spans.span`), of which some is recorded always, also outside sampled steps (span_id from 1,000,000 on).
-- scope: recording
-- check: unique(recording_id, step, span_id)
SELECT
    CAST(recording_id AS VARCHAR) AS recording_id,  -- The recording, in recordings.
    CAST(batch_id AS VARCHAR) AS batch_id,  -- Ingest run that wrote it.
    CAST(step AS BIGINT) AS step,  -- Number of the step in its loop, from 0.
    CAST(span_id AS BIGINT) AS span_id,  -- The span within its step.
    CAST(parent_id AS BIGINT) AS parent_id,  -- The span that it lies in; NULL for the step.
    CAST(depth AS BIGINT) AS depth,  -- Nesting depth, 0 for the step.
    -- Module, as model.named_modules() has it; the model's class for the whole of it; step.
    CAST(name AS VARCHAR) AS name,
    CAST(class AS VARCHAR) AS class,  -- Its class.
    CAST(phase AS VARCHAR) AS phase,  -- step, forward, backward, recompute (a forward within a backward), own.
    CAST(tid AS BIGINT) AS tid,  -- Thread.
    CAST(start_ns AS BIGINT) AS start_ns,  -- Start, ns since the Unix epoch.
    -- Duration by its clock, ns: never compare durations of different clocks.
    CAST(duration_ns AS BIGINT) AS duration_ns,
    -- Duration of the host's calls, ns: the same on the CPU; how long launching took on a GPU.
    CAST(host_duration_ns AS BIGINT) AS host_duration_ns,
    -- Shapes of the module's input tensors, as JSON lists, null for one that is unknown; for a step, those of its
    -- first module.
    CAST(input_shapes AS VARCHAR) AS input_shapes,
    CAST(input_dtypes AS VARCHAR) AS input_dtypes,  -- Their types, as a JSON list.
    -- What the duration measures. host: the work, which is done when the call returns (CPU); cuda: the work, by events
    -- on the stream; host_calls: only the host's calls, while the work ran elsewhere in its own time.
    CAST(clock AS VARCHAR) AS clock,
    CAST(is_failed AS BOOLEAN) AS is_failed,  -- It ended with an exception.
    -- Its operators were counted at the same time (span_sample_operators), so its times are too long.
    coalesce(CAST(is_census AS BOOLEAN), FALSE) AS is_census,
    CAST(metadata AS VARCHAR) AS metadata,  -- What own code said of itself, JSON; NULL where nothing.
    -- It is recorded whatever the sampling rate: do not scale it as others.
    coalesce(CAST(is_always AS BOOLEAN), FALSE) AS is_always,
    -- Cycles of the CPU that the span's thread took in user code, as perf_event counts: with spans inside, without
    -- other threads. NULL where they were not counted (recordings.cpu_source) or it ended in another thread; so the
    -- next five.
    CAST(cycles AS BIGINT) AS cycles,
    CAST(instructions AS BIGINT) AS instructions,  -- Instructions.
    CAST(branch_instructions AS BIGINT) AS branch_instructions,  -- Branches.
    CAST(branch_misses AS BIGINT) AS branch_misses,  -- Branches that were predicted wrong.
    -- Accesses to the last level of the caches, as the system's generic event has it.
    CAST(cache_references AS BIGINT) AS cache_references,
    CAST(cache_misses AS BIGINT) AS cache_misses,  -- Those that missed.
    -- Share of the span in which they were counted, the least of the two groups: a CPU may have fewer counters than
    -- events, which take turns, and numbers are scaled up.
    CAST(counter_coverage AS DOUBLE) AS counter_coverage
FROM _staged_span_samples
