-- One row: something that ingestion repaired, dropped or could not read in a trace. The table quality has these and
-- more.
SELECT
    CAST(trace_id AS VARCHAR) AS trace_id,  -- The trace.
    CAST(batch_id AS VARCHAR) AS batch_id,  -- Ingest run that wrote it.
    CAST(check_name AS VARCHAR) AS check_name,  -- Name of the check.
    CAST(severity AS VARCHAR) AS severity,  -- info, warning or error.
    CAST(n AS BIGINT) AS n,  -- How many times it was found.
    CAST(detail AS VARCHAR) AS detail  -- What it means and where, with the byte offset where there is one.
FROM _staged_findings
