-- One row: a task in an iteration of a run, with its times and the stall of its stream before it.
-- scope: run
-- check: unique(run_id, task, iteration)
SELECT
    CAST(run_id AS VARCHAR) AS run_id,  -- The run.
    CAST(batch_id AS VARCHAR) AS batch_id,  -- Ingest run that wrote it.
    CAST(task AS VARCHAR) AS task,  -- Task.
    CAST(iteration AS BIGINT) AS iteration,  -- Iteration, from 0.
    -- Time at which the host submitted it to its stream, ns since the start of the run.
    CAST(submit_ns AS BIGINT) AS submit_ns,
    -- Start of its function on the host clock, ns since the start of the run; on cuda, the function only launches
    -- kernels.
    CAST(start_ns AS BIGINT) AS start_ns,
    CAST(end_ns AS BIGINT) AS end_ns,  -- End of its function, on the same clock, ns.
    -- Time at which its stream reached it, by device events, ns since the start of the run; NULL on devices without
    -- events.
    CAST(device_start_ns AS BIGINT) AS device_start_ns,
    CAST(device_end_ns AS BIGINT) AS device_end_ns,  -- End of its kernels, by device events, ns.
    CAST(stall_ns AS BIGINT) AS stall_ns,  -- Stall of its stream before it, ns; NULL if not measured.
    CAST(stall_cause AS VARCHAR) AS stall_cause  -- Cause of the longest wait of the stream; NULL if it did not wait.
FROM _staged_schedule_task_timings
