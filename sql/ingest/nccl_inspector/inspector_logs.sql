-- One row: a log of the NCCL Inspector, NCCL's profiler plugin. Each process has one file, which grows while the job
-- runs. This table is the commit marker of logs: rows of the other Inspector tables count only if their log is in it.
-- scope: inspector
-- key: log_id
-- check: unique(log_id)
SELECT
    -- First 16 hex digits of the SHA-256 of its first line, which does not change as the log grows.
    CAST(log_id AS VARCHAR) AS log_id,
    CAST(batch_id AS VARCHAR) AS batch_id,  -- Ingest run that wrote it.
    CAST(path AS VARCHAR) AS path,  -- Path of the file.
    regexp_extract(CAST(path AS VARCHAR), '[^/\\]*$') AS file,  -- File name without the folder.
    CAST(job AS VARCHAR) AS job,  -- Job name, set at ingestion or taken from the path; NULL if unknown.
    CAST(host AS VARCHAR) AS host,  -- Host name in the log.
    CAST(pid AS BIGINT) AS pid,  -- Process.
    CAST(version AS VARCHAR) AS version,  -- Version of the format (inspector_output_format_version).
    CAST(n_lines AS BIGINT) AS n_lines,  -- Number of lines read.
    CAST(n_collectives AS BIGINT) AS n_collectives,  -- Number of lines with a collective or a point-to-point call.
    -- Number of calls that the plugin overwrote before writing them, as it reports; 0 also if its version does not
    -- report it.
    CAST(n_dropped AS BIGINT) AS n_dropped,
    CAST(unpacked_bytes AS BIGINT) AS unpacked_bytes,  -- Size of the file when it was read, bytes.
    CAST(ingested_at AS TIMESTAMP) AS ingested_at  -- Time of ingestion, UTC.
FROM _staged_inspector_logs
