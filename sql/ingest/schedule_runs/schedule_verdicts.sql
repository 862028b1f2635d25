-- One row: a pipelined run of a comparison, and how it compares with the serial run.
-- scope: run
-- check: unique(run_id)
SELECT
    CAST(run_id AS VARCHAR) AS run_id,  -- The run.
    CAST(batch_id AS VARCHAR) AS batch_id,  -- Ingest run that wrote it.
    CAST(comparison_id AS VARCHAR) AS comparison_id,  -- The comparison.
    CAST(serial_run_id AS VARCHAR) AS serial_run_id,  -- The serial run of the comparison.
    CAST(speedup AS DOUBLE) AS speedup,  -- Serial period divided by the period of the run: the median of the rounds.
    CAST(speedup_low AS DOUBLE) AS speedup_low,  -- Smallest speedup of a round.
    CAST(speedup_high AS DOUBLE) AS speedup_high,  -- Largest speedup of a round.
    -- Result of the comparison, as text, with the limit and the reason for the limit.
    CAST(verdict AS VARCHAR) AS verdict
FROM _staged_schedule_verdicts
