-- One row: a kind of fault in a log of the NCCL Inspector. Faulty lines are skipped.
-- scope: inspector
-- check: unique(log_id, fault)
SELECT
    CAST(log_id AS VARCHAR) AS log_id,  -- The log.
    CAST(batch_id AS VARCHAR) AS batch_id,  -- Ingest run that wrote it.
    -- not_json, not_a_record, unknown_record, no_communicator, wrong_field, incomplete_dump, cut_line, proxy_trace.
    -- Compressed data: damaged.
    CAST(fault AS VARCHAR) AS fault,
    CAST(severity AS VARCHAR) AS severity,  -- info or warning.
    CAST(n AS BIGINT) AS n,  -- Number of lines: for incomplete_dump, of missing lines.
    CAST(detail AS VARCHAR) AS detail  -- First occurrence, with its line; of damaged data, with its byte.
FROM _staged_inspector_findings
