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
    -- Lower bound of period_ns: the work on the busiest stream, or the longest cycle of dependencies; NULL for tasks.
    CAST(ideal_ns AS BIGINT) AS ideal_ns,
    -- Longest cycle of dependencies, ns per iteration that it spans; NULL for tasks and without a cycle. A globally
    -- ordered task (a collective) counts with its shortest time.
    CAST(cycle_ns AS BIGINT) AS cycle_ns,
    CAST(cycle AS VARCHAR) AS cycle,  -- Tasks of that cycle, separated by ->; the first waits for the last.
    CAST(stall_ns AS BIGINT) AS stall_ns  -- Predicted time that the stream stalls before the task, ns per iteration.
FROM _staged_schedule_predictions
