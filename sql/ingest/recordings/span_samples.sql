-- One row: a span of a sampled training step: the step, a module's forward, backward or recomputed forward, or user
-- code (`spans.span`). Some spans of user code are always recorded, also outside sampled steps (span_id from 1,000,000
-- on). A sampled step may measure only some modules (span_sample_modules).
-- scope: recording
-- check: unique(recording_id, step, span_id)
SELECT
    CAST(recording_id AS VARCHAR) AS recording_id,  -- The recording, in recordings.
    CAST(batch_id AS VARCHAR) AS batch_id,  -- Ingest run that wrote it.
    CAST(step AS BIGINT) AS step,  -- Number of the step in its loop, from 0.
    CAST(span_id AS BIGINT) AS span_id,  -- The span within its step.
    -- Enclosing span, of those that were measured; NULL for the step.
    CAST(parent_id AS BIGINT) AS parent_id,
    CAST(depth AS BIGINT) AS depth,  -- Number of enclosing spans that were measured, 0 for the step.
    -- Name of the module in model.named_modules(); the model's class for the whole model; step for the step.
    CAST(name AS VARCHAR) AS name,
    CAST(class AS VARCHAR) AS class,  -- Class of the module.
    -- step, forward, backward, recompute (a forward within a backward), own (user code).
    CAST(phase AS VARCHAR) AS phase,
    CAST(tid AS BIGINT) AS tid,  -- Thread.
    CAST(start_ns AS BIGINT) AS start_ns,  -- Start, ns since the Unix epoch.
    -- Duration by its clock, ns; never compare durations of different clocks.
    CAST(duration_ns AS BIGINT) AS duration_ns,
    -- Duration of the host's calls, ns; on a CPU, equal to duration_ns; on a GPU, the time to launch the work.
    CAST(host_duration_ns AS BIGINT) AS host_duration_ns,
    -- Shapes of the module's input tensors, as JSON lists, with null for an unknown shape; for a step and user code,
    -- the shapes of the first module in it. If not all modules were measured, the shapes of the model's call in it, or
    -- NULL.
    CAST(input_shapes AS VARCHAR) AS input_shapes,
    CAST(input_dtypes AS VARCHAR) AS input_dtypes,  -- Types of these tensors, as a JSON list.
    -- Clock of the duration. host: the work, which is done when the call returns (CPU). cuda: the work, by events on
    -- the stream. host_calls: only the host's calls, while the work ran asynchronously elsewhere.
    CAST(clock AS VARCHAR) AS clock,
    CAST(is_failed AS BOOLEAN) AS is_failed,  -- Whether it ended with an exception.
    -- Whether its operators were counted at the same time (span_sample_operators), which makes its times too long.
    coalesce(CAST(is_census AS BOOLEAN), FALSE) AS is_census,
    CAST(metadata AS VARCHAR) AS metadata,  -- Metadata set by user code, JSON; NULL if not set.
    -- Whether it is recorded regardless of the sampling rate, so it must not be scaled like others.
    coalesce(CAST(is_always AS BOOLEAN), FALSE) AS is_always,
    -- CPU cycles of the span's thread in user code, from perf_event, including nested spans, excluding other threads.
    -- NULL if not counted (recordings.cpu_source), or if the span ended in another thread. The same applies to the next
    -- five columns.
    CAST(cycles AS BIGINT) AS cycles,
    CAST(instructions AS BIGINT) AS instructions,  -- Number of instructions.
    CAST(branch_instructions AS BIGINT) AS branch_instructions,  -- Number of branches.
    CAST(branch_misses AS BIGINT) AS branch_misses,  -- Number of mispredicted branches.
    -- Number of accesses to the last-level cache, by the system's generic event.
    CAST(cache_references AS BIGINT) AS cache_references,
    CAST(cache_misses AS BIGINT) AS cache_misses,  -- Number of accesses that missed.
    -- Share of the span in which the events were counted, for the less covered of the two groups of events. A CPU may
    -- have fewer counters than events; then events take turns, and counts are scaled up.
    CAST(counter_coverage AS DOUBLE) AS counter_coverage
FROM _staged_span_samples
