-- One row: a log of the NCCL Inspector, NCCL's profiler plugin: one file per process, which grows while the job runs.
-- This table is the commit mark of logs: rows of the other Inspector tables count only where their log is here.
-- scope: inspector
-- key: log_id
-- check: unique(log_id)
SELECT
    -- First 16 hex digits of the SHA-256 of its first line, which stays as it grows.
    CAST(log_id AS VARCHAR) AS log_id,
    CAST(batch_id AS VARCHAR) AS batch_id,  -- Ingest run that wrote it.
    CAST(path AS VARCHAR) AS path,  -- The file.
    regexp_extract(CAST(path AS VARCHAR), '[^/\\]*$') AS file,  -- Its name without the folder.
    CAST(job AS VARCHAR) AS job,  -- Job name, given at ingestion or from the path; NULL when unknown.
    CAST(host AS VARCHAR) AS host,  -- Host, as the log has it.
    CAST(pid AS BIGINT) AS pid,  -- Process.
    CAST(version AS VARCHAR) AS version,  -- Version of the format (inspector_output_format_version).
    CAST(n_lines AS BIGINT) AS n_lines,  -- Lines that were read.
    CAST(n_collectives AS BIGINT) AS n_collectives,  -- Those that are a collective or a point-to-point call.
    -- Calls that the plugin overwrote before it wrote them, as it says; 0 also where its version does not say.
    CAST(n_dropped AS BIGINT) AS n_dropped,
    CAST(unpacked_bytes AS BIGINT) AS unpacked_bytes,  -- Bytes of the file, when it was read.
    CAST(ingested_at AS TIMESTAMP) AS ingested_at  -- When it was ingested, UTC.
FROM _staged_inspector_logs
