-- One row: a recording of counters, stacks or spans (python -m pipelines.record.counters, .stacks;
-- pipelines.record.spans). This table is the commit mark of recordings: rows of the other tables of recordings count
-- only where their recording is here.
-- scope: recording
-- key: recording_id
-- check: unique(recording_id)
SELECT
    CAST(recording_id AS VARCHAR) AS recording_id,  -- The recording.
    CAST(batch_id AS VARCHAR) AS batch_id,  -- Ingest run that wrote it.
    CAST(kind AS VARCHAR) AS kind,  -- counters, stacks or spans.
    -- What recordings of one run have in common; the recording itself where no name was given.
    CAST(run_id AS VARCHAR) AS run_id,
    CAST(host AS VARCHAR) AS host,  -- Host.
    CAST(rank AS BIGINT) AS rank,  -- Rank; NULL if not recorded.
    CAST(pid AS BIGINT) AS pid,  -- Process that was recorded.
    -- Command that the recorder started, or was part of; NULL where it attached to a process.
    CAST(command AS VARCHAR) AS command,
    CAST(device AS VARCHAR) AS device,  -- Device of the model; NULL for counters.
    -- Its name as the runtime gives it; on a CPU, cpu: and the processor's name; NULL for counters.
    CAST(device_name AS VARCHAR) AS device_name,
    CAST(device_memory_bytes AS BIGINT) AS device_memory_bytes,  -- Its memory, bytes; NULL except for a GPU.
    CAST(device_sms AS BIGINT) AS device_sms,  -- Its multiprocessors; NULL except for a GPU.
    -- Of counters: nvml, or why there are no GPU counters; of stacks: thread, or the timer; of spans: host or cuda, the
    -- clock.
    CAST(source AS VARCHAR) AS source,
    CAST(net_source AS VARCHAR) AS net_source,  -- Of counters: the network devices, or why there are none.
    -- Of spans: the CPU's counters that were read, or why none were; NULL where they were not asked for.
    CAST(cpu_source AS VARCHAR) AS cpu_source,
    CAST(start_ns AS BIGINT) AS start_ns,  -- Start, ns since the Unix epoch.
    CAST(end_ns AS BIGINT) AS end_ns,  -- End, ns since the Unix epoch; NULL where it had not ended.
    -- complete; or running or killed when it was ingested: then it holds what was on disk, and ends at seen_ns.
    CAST(state AS VARCHAR) AS state,
    -- When its recorder last wrote, ns since the Unix epoch.
    CAST(seen_ns AS BIGINT) AS seen_ns,
    CAST(n_rows AS BIGINT) AS n_rows,  -- Rows of its other tables.
    CAST(n_lost AS BIGINT) AS n_lost,  -- Rows that could not be written.
    -- Of spans: modules that were not measured, or whose measuring failed; NULL for counters.
    CAST(n_unhooked AS BIGINT) AS n_unhooked,
    CAST(unhooked AS VARCHAR) AS unhooked,  -- The first 100 of them with class and reason, JSON; NULL for counters.
    CAST(n_samples AS BIGINT) AS n_samples,  -- Of stacks: samples that were taken, each of all threads.
    CAST(interval_ns AS BIGINT) AS interval_ns,  -- Of counters and stacks: time between two samples, ns.
    -- Of counters and stacks: instants that were skipped because a sample took longer.
    CAST(n_late AS BIGINT) AS n_late,
    CAST(cost_ns AS BIGINT) AS cost_ns,  -- Of counters and stacks: CPU time that sampling took, ns.
    CAST(rate AS DOUBLE) AS rate,  -- Of spans: share of steps that were to be sampled.
    CAST(n_steps AS BIGINT) AS n_steps,  -- Of spans: steps of the loop.
    CAST(n_sampled_steps AS BIGINT) AS n_sampled_steps  -- Of spans: those that were sampled.
FROM _staged_recordings
