-- One row: a part of an op-level job, with the slowdown that it causes by itself. Slowdowns of parts do not add up and
-- are not shares of a whole. A stage's slowdown may exceed the job's.
-- How: the step with every op ideal except those of the part, divided by the step with every op ideal. A job that loses
-- less than 3 % has only its own row.
-- scope: job
-- check: unique(job_id, scope, key)
SELECT
    CAST(job_id AS VARCHAR) AS job_id,  -- The job's trace, in op_jobs.
    CAST(batch_id AS VARCHAR) AS batch_id,  -- Ingest run that wrote it.
    CAST(job AS VARCHAR) AS job,  -- Name of the job.
    -- job, dp_rank, stage, optype (sends and receives of a direction together), last_stage or worst_ranks (the 3 % with
    -- the highest scores).
    CAST(scope AS VARCHAR) AS scope,
    -- The dp rank, stage or op type; for worst_ranks, the ranks separated by commas; NULL for the job.
    CAST(key AS VARCHAR) AS key,
    CAST(slowdown AS DOUBLE) AS slowdown,  -- The step with only this part as recorded, divided by the ideal step.
    -- Share of the job's loss that disappears when only this part is ideal (M_S of last_stage, M_W of worst_ranks); may
    -- exceed 1 or be negative; NULL for other scopes.
    CAST(explained AS DOUBLE) AS explained,
    -- Share of the job's loss that remains when only this part is as recorded; NULL for other scopes.
    CAST(explained_alone AS DOUBLE) AS explained_alone,
    -- Like slowdown, but with an ideal per stage, so that a stage that is meant to be longer does not count as a
    -- straggler; NULL for last_stage and worst_ranks.
    CAST(slowdown_stage_ideal AS DOUBLE) AS slowdown_stage_ideal
FROM _staged_op_job_what_if
