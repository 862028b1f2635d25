-- One row: a fault of lines or values of a file of hardware counters.
-- scope: counters
-- check: unique(trace_id, fault)
SELECT
    CAST(trace_id AS VARCHAR) AS trace_id,  -- The file, in counter_files.
    CAST(batch_id AS VARCHAR) AS batch_id,  -- Ingest run that wrote it.
    -- Lines left out: broken_line, cut_line (the last one), repeated; values that became NULL: wrong_value,
    -- ends_before_start, not_measured; columns: missing_column; packed data: damaged; from ncu also no_units, no_metric
    -- (advice), text_value and other_output, which are left out.
    CAST(fault AS VARCHAR) AS fault,
    CAST(severity AS VARCHAR) AS severity,  -- info or warning.
    CAST(n AS BIGINT) AS n,  -- How many times it was found.
    CAST(detail AS VARCHAR) AS detail  -- What the first of them was, with its line.
FROM _staged_counter_findings
