-- One row: a part of an op-level job, with the slowdown it brings about by itself. Slowdowns of parts are not additive and no shares of a whole: that of a stage may exceed the job's.
-- How: every op ideal but those of the part, over every op ideal. A job that loses less than 3 % has only its own row.
-- scope: job
-- check: unique(job_id, scope, key)
SELECT
    CAST(job_id AS VARCHAR) AS job_id,  -- The job's trace, in op_jobs.
    CAST(batch_id AS VARCHAR) AS batch_id,  -- Ingest run that wrote it.
    CAST(job AS VARCHAR) AS job,  -- Name of the job.
    CAST(scope AS VARCHAR) AS scope,  -- job, dp_rank, stage, optype (sends and receives of a direction together), last_stage or worst_ranks (the 3 % with the highest scores).
    CAST(key AS VARCHAR) AS key,  -- Which dp rank, stage or op type; of worst_ranks the ranks, joined by a comma; NULL for the job.
    CAST(slowdown AS DOUBLE) AS slowdown,  -- Step with only this part as it was, over the ideal step.
    CAST(explained AS DOUBLE) AS explained,  -- Share of the job's loss that is gone when only this part is ideal (M_S of last_stage, M_W of worst_ranks); may exceed 1 or be negative; NULL for other scopes.
    CAST(explained_alone AS DOUBLE) AS explained_alone,  -- Share of the job's loss that is there when only this part is as it was; NULL for other scopes.
    CAST(slowdown_stage_ideal AS DOUBLE) AS slowdown_stage_ideal  -- Like slowdown, with an ideal for each stage: a stage that is meant to be longer is then no straggler; NULL for last_stage and worst_ranks.
FROM _staged_straggler_what_if
