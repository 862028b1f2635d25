-- One row: a finding of ingestion about a trace: data that it repaired, dropped or could not read. The table quality
-- contains these findings and more.
SELECT
    CAST(trace_id AS VARCHAR) AS trace_id,  -- The trace.
    CAST(batch_id AS VARCHAR) AS batch_id,  -- Ingest run that wrote it.
    CAST(check_name AS VARCHAR) AS check_name,  -- Name of the check.
    CAST(severity AS VARCHAR) AS severity,  -- info, warning or error.
    CAST(n AS BIGINT) AS n,  -- Number of occurrences.
    CAST(detail AS VARCHAR) AS detail  -- Explanation and location, with the byte offset if there is one.
FROM _staged_findings
