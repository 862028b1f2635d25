-- One row: something that ingestion repaired, dropped or could not read in a trace. The table quality has these and
-- more.
SELECT
    trace_id,  -- The trace.
    batch_id,  -- Ingest run that wrote it.
    "check",  -- Name of the check.
    severity,  -- info, warning or error.
    CAST(n AS BIGINT) AS n,  -- How many times it was found.
    detail  -- What it means and where, with the byte offset where there is one.
FROM _staged_findings
