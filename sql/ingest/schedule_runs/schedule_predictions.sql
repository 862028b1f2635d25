-- One row: a task of a run (task NULL: the whole iteration), with the prediction of a simulation from the run's own
-- durations.
-- scope: run
-- check: unique(run_id, task)
SELECT
    CAST(run_id AS VARCHAR) AS run_id,  -- The run.
    CAST(batch_id AS VARCHAR) AS batch_id,  -- Ingest run that wrote it.
    CAST(task AS VARCHAR) AS task,  -- Task; NULL for the whole iteration.
    CAST(duration_ns AS BIGINT) AS duration_ns,  -- Duration passed to the simulation, ns; NULL for the iteration.
    CAST(period_ns AS BIGINT) AS period_ns,  -- Predicted period of the pipeline, ns; NULL for tasks.
    CAST(ideal_ns AS BIGINT) AS ideal_ns,  -- Work on the busiest stream, ns per iteration; NULL for tasks.
    CAST(stall_ns AS BIGINT) AS stall_ns  -- Predicted time that the stream stalls before the task, ns per iteration.
FROM _staged_schedule_predictions
