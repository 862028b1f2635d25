-- One row: a fault of parts of a log of torch.compile, which are left out.
-- scope: compile_provenance
-- check: unique(provenance_id, fault)
SELECT
    CAST(provenance_id AS VARCHAR) AS provenance_id,  -- The log.
    CAST(batch_id AS VARCHAR) AS batch_id,  -- Ingest run that wrote it.
    CAST(fault AS VARCHAR) AS fault,  -- not_json, wrong_form, no_payload, cut_line or cut_file.
    CAST(n AS BIGINT) AS n,  -- How many times it was found.
    CAST(detail AS VARCHAR) AS detail  -- What the first of them was, with its line.
FROM _staged_compile_findings
