-- One row: a round of a comparison, in which the engines ran in turn, in one process and without a profiler.
-- scope: run
-- check: unique(run_id, round)
SELECT
    CAST(run_id AS VARCHAR) AS run_id,  -- The run.
    CAST(batch_id AS VARCHAR) AS batch_id,  -- Ingest run that wrote it.
    CAST(comparison_id AS VARCHAR) AS comparison_id,  -- The comparison: the same for the runs of all its engines.
    CAST(round AS BIGINT) AS round,  -- Round, from 0.
    CAST(iterations AS BIGINT) AS iterations,  -- Number of iterations over which the period is averaged.
    -- Time of an iteration, ns, from the difference between a long run and a short run.
    CAST(period_ns AS BIGINT) AS period_ns
FROM _staged_schedule_rounds
