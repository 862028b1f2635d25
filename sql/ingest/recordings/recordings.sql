-- One row: a recording of counters, stacks or spans (python -m pipelines.record.counters, .stacks;
-- pipelines.record.spans). This table is the commit marker of recordings: rows of the other tables of recordings count
-- only if their recording is in it.
-- scope: recording
-- key: recording_id
-- check: unique(recording_id)
SELECT
    CAST(recording_id AS VARCHAR) AS recording_id,  -- The recording.
    CAST(batch_id AS VARCHAR) AS batch_id,  -- Ingest run that wrote it.
    CAST(kind AS VARCHAR) AS kind,  -- counters, stacks or spans.
    -- Run id, shared by the recordings of a run; the recording's id if no name was set.
    CAST(run_id AS VARCHAR) AS run_id,
    CAST(host AS VARCHAR) AS host,  -- Host.
    CAST(rank AS BIGINT) AS rank,  -- Rank; NULL if not recorded.
    CAST(pid AS BIGINT) AS pid,  -- Id of the recorded process.
    -- Command that the recorder started or ran in; NULL if it attached to a process.
    CAST(command AS VARCHAR) AS command,
    CAST(device AS VARCHAR) AS device,  -- Device of the model; NULL for counters.
    -- Device name from the runtime; for a CPU, cpu: and the processor's name; NULL for counters.
    CAST(device_name AS VARCHAR) AS device_name,
    CAST(device_memory_bytes AS BIGINT) AS device_memory_bytes,  -- Memory of the device, bytes; NULL except for a GPU.
    CAST(device_sms AS BIGINT) AS device_sms,  -- Number of multiprocessors; NULL except for a GPU.
    -- For counters: nvml, or the reason why there are no GPU counters; for stacks: thread, or the timer; for spans: the
    -- clock, host or cuda.
    CAST(source AS VARCHAR) AS source,
    CAST(net_source AS VARCHAR) AS net_source,  -- For counters: network devices, or the reason why there are none.
    -- For spans: CPU counters that were read, or the reason why none were; NULL if not requested.
    CAST(cpu_source AS VARCHAR) AS cpu_source,
    CAST(start_ns AS BIGINT) AS start_ns,  -- Start, ns since the Unix epoch.
    CAST(end_ns AS BIGINT) AS end_ns,  -- End, ns since the Unix epoch; NULL if it had not ended.
    -- complete; or running or killed at the time of ingestion: then it contains the rows on disk and ends at seen_ns.
    CAST(state AS VARCHAR) AS state,
    CAST(seen_ns AS BIGINT) AS seen_ns,  -- Time of the recorder's last write, ns since the Unix epoch.
    CAST(n_rows AS BIGINT) AS n_rows,  -- Number of its rows in other tables.
    CAST(n_lost AS BIGINT) AS n_lost,  -- Number of rows that could not be written.
    -- For spans: number of modules that were not measured, or whose measurement failed; NULL for counters.
    CAST(n_unhooked AS BIGINT) AS n_unhooked,
    CAST(unhooked AS VARCHAR) AS unhooked,  -- First 100 such modules with class and reason, JSON; NULL for counters.
    CAST(n_samples AS BIGINT) AS n_samples,  -- For stacks: number of samples, each of all threads.
    CAST(interval_ns AS BIGINT) AS interval_ns,  -- For counters and stacks: sampling interval, ns.
    -- For counters and stacks: number of skipped samples, because an earlier sample took too long.
    CAST(n_late AS BIGINT) AS n_late,
    -- For counters and stacks: CPU time of sampling, ns. For spans: extra time of sampled steps compared with other
    -- steps, ns.
    CAST(cost_ns AS BIGINT) AS cost_ns,
    -- For spans: share of steps to sample, as configured. For a budget, the last share that the recorder used; while
    -- the budget is spent, no step is sampled.
    CAST(rate AS DOUBLE) AS rate,
    CAST(n_steps AS BIGINT) AS n_steps,  -- For spans: number of steps of the loop.
    CAST(n_sampled_steps AS BIGINT) AS n_sampled_steps  -- For spans: number of sampled steps.
FROM _staged_recordings
