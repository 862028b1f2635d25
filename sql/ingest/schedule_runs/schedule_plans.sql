-- One row: a task of a plan, as recorded by the first run of the plan.
-- scope: run
-- check: unique(plan_hash, task)
SELECT
    CAST(plan_hash AS VARCHAR) AS plan_hash,  -- The plan.
    CAST(run_id AS VARCHAR) AS run_id,  -- Run that recorded the plan first.
    CAST(batch_id AS VARCHAR) AS batch_id,  -- Ingest run that wrote it.
    CAST(plan AS VARCHAR) AS plan,  -- Name of the plan.
    CAST(workload AS VARCHAR) AS workload,  -- Workload that the plan computes.
    CAST(position AS BIGINT) AS position,  -- Position of the task in the plan, from 0.
    CAST(task AS VARCHAR) AS task,  -- Task.
    CAST(stage AS BIGINT) AS stage,  -- Pipeline stage: number of iterations by which the task is behind the newest.
    CAST(stream AS VARCHAR) AS stream,  -- Stream on which it runs.
    CAST(thread_group AS VARCHAR) AS thread_group,  -- Host thread that submits it in a data-flow engine.
    CAST(globally_ordered AS BOOLEAN) AS globally_ordered,  -- Whether it is submitted in the same order on every rank.
    CAST(depends_on AS VARCHAR) AS depends_on,  -- Tasks of the same iteration for which it waits, separated by commas.
    -- Tasks of the previous iteration for which it waits, separated by commas.
    CAST(depends_on_last AS VARCHAR) AS depends_on_last
FROM _staged_schedule_plans
