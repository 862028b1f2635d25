-- One row: a task in an iteration of a run: when it was submitted and ran, and what its stream waited for before it.
-- scope: run
-- check: unique(run_id, task, iteration)
SELECT
    CAST(run_id AS VARCHAR) AS run_id,  -- The run.
    CAST(batch_id AS VARCHAR) AS batch_id,  -- Ingest run that wrote it.
    CAST(task AS VARCHAR) AS task,  -- Task.
    CAST(iteration AS BIGINT) AS iteration,  -- Iteration, from 0.
    CAST(submit_ns AS BIGINT) AS submit_ns,  -- The host handed it to its stream, ns since the start of the run.
    -- Its function began on the host clock, ns since the start of the run; on cuda that only launches its kernels.
    CAST(start_ns AS BIGINT) AS start_ns,
    CAST(end_ns AS BIGINT) AS end_ns,  -- Its function returned, likewise.
    -- When its stream reached it, by device events, ns since the start of the run; NULL on devices without events of
    -- their own.
    CAST(device_start_ns AS BIGINT) AS device_start_ns,
    CAST(device_end_ns AS BIGINT) AS device_end_ns,  -- Its kernels were done, likewise.
    CAST(stall_ns AS BIGINT) AS stall_ns,  -- How long its stream stalled before it, ns; NULL where not measured.
    CAST(stall_cause AS VARCHAR) AS stall_cause  -- What the stream waited for the longest; NULL where it did not wait.
FROM _staged_schedule_task_timings
