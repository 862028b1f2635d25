-- One row: a stage and dp rank of an op-level job, with the smaller of their two slowdowns: a cell of the heat map. A
-- job that loses less than 3 % has no rows.
-- scope: job
-- check: unique(job_id, stage, dp_rank)
SELECT
    CAST(job_id AS VARCHAR) AS job_id,  -- The job's trace, in op_jobs.
    CAST(batch_id AS VARCHAR) AS batch_id,  -- Ingest run that wrote it.
    CAST(stage AS BIGINT) AS stage,  -- Pipeline stage.
    CAST(dp_rank AS BIGINT) AS dp_rank,  -- Data-parallel rank.
    CAST(rank AS BIGINT) AS rank,  -- Global rank recorded for this stage and dp rank.
    CAST(score AS DOUBLE) AS score,  -- min(slowdown of the stage, slowdown of the dp rank).
    CAST(is_worst AS BOOLEAN) AS is_worst  -- Whether it is among the 3 % (at least one) with the highest scores.
FROM _staged_op_job_rank_scores
