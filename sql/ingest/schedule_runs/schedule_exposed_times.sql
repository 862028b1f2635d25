-- One row: a task of a run, with the time that an iteration saves without the task (measured by a shortcut run).
-- scope: run
-- check: unique(run_id, task)
SELECT
    CAST(run_id AS VARCHAR) AS run_id,  -- The run.
    CAST(batch_id AS VARCHAR) AS batch_id,  -- Ingest run that wrote it.
    CAST(task AS VARCHAR) AS task,  -- Task.
    -- Serial iteration minus serial iteration without the task, ns; never below 0.
    CAST(exposed_ns AS BIGINT) AS exposed_ns,
    CAST(baseline_ns AS BIGINT) AS baseline_ns  -- The serial iteration, ns.
FROM _staged_schedule_exposed_times
