-- One row: a kind of fault in a file of hardware counters.
-- scope: counters
-- check: unique(trace_id, fault)
SELECT
    CAST(trace_id AS VARCHAR) AS trace_id,  -- The file, in counter_files.
    CAST(batch_id AS VARCHAR) AS batch_id,  -- Ingest run that wrote it.
    -- Skipped lines: broken_line, cut_line (the last line), repeated. Values that became NULL: wrong_value,
    -- ends_before_start, not_measured. Columns: missing_column. Compressed data: damaged. From ncu also no_units,
    -- no_metric (advice), text_value and other_output, which are skipped.
    CAST(fault AS VARCHAR) AS fault,
    CAST(severity AS VARCHAR) AS severity,  -- info or warning.
    CAST(n AS BIGINT) AS n,  -- Number of occurrences.
    CAST(detail AS VARCHAR) AS detail  -- First occurrence, with its line.
FROM _staged_counter_findings
