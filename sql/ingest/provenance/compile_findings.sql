-- One row: a kind of fault in a log of torch.compile. Faulty parts are skipped.
-- scope: compile_provenance
-- check: unique(provenance_id, fault)
SELECT
    CAST(provenance_id AS VARCHAR) AS provenance_id,  -- The log.
    CAST(batch_id AS VARCHAR) AS batch_id,  -- Ingest run that wrote it.
    CAST(fault AS VARCHAR) AS fault,  -- not_json, wrong_form, no_payload, cut_line or cut_file.
    CAST(n AS BIGINT) AS n,  -- Number of occurrences.
    CAST(detail AS VARCHAR) AS detail  -- First occurrence, with its line.
FROM _staged_compile_findings
