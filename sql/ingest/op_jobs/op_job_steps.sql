-- One row: a step of an op-level job and a part of the job, with the part's slowdown in that step.
-- scope: job
-- check: unique(job_id, scope, key, step)
SELECT
    CAST(job_id AS VARCHAR) AS job_id,  -- The job's trace, in op_jobs.
    CAST(batch_id AS VARCHAR) AS batch_id,  -- Ingest run that wrote it.
    CAST(scope AS VARCHAR) AS scope,  -- Kind of part, as in op_job_what_if.
    CAST(key AS VARCHAR) AS key,  -- Key of the part, as in op_job_what_if; NULL for the job.
    CAST(step AS BIGINT) AS step,  -- Number of the step.
    CAST(recorded_ns AS BIGINT) AS recorded_ns,  -- Duration of the step as recorded, ns; NULL for parts of the job.
    -- Duration of the step with only this part as recorded (for the job: everything), ns.
    CAST(step_ns AS BIGINT) AS step_ns,
    CAST(ideal_ns AS BIGINT) AS ideal_ns,  -- Duration of the ideal step, ns.
    CAST(slowdown AS DOUBLE) AS slowdown  -- step_ns divided by ideal_ns.
FROM _staged_op_job_steps
