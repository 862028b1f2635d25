-- One row: a file of hardware counters (rocprofv3's counter collection, `ncu --csv`, a trace of Kineto's range
-- profiler). The counters are usually from another run than the timing, so the file is a separate source.
-- This table is the commit marker of counter files: rows of the other counter tables count only if their file is in it.
-- scope: counters
-- key: trace_id
-- check: unique(trace_id)
SELECT
    -- First 16 hex digits of the SHA-256 of its content; for a trace the trace's id.
    CAST(trace_id AS VARCHAR) AS trace_id,
    CAST(batch_id AS VARCHAR) AS batch_id,  -- Ingest run that wrote it.
    CAST(path AS VARCHAR) AS path,  -- Path of the file.
    regexp_extract(CAST(path AS VARCHAR), '[^/\\]*$') AS file,  -- File name without the folder.
    CAST(job AS VARCHAR) AS job,  -- Job name, set at ingestion or taken from the path; NULL if unknown.
    -- Number of lines read, including the first; for a trace, the number of its events.
    CAST(n_lines AS BIGINT) AS n_lines,
    CAST(n_counters AS BIGINT) AS n_counters,  -- Number of its rows in kernel_counters.
    CAST(unpacked_bytes AS BIGINT) AS unpacked_bytes,  -- Size of the decompressed content, bytes.
    CAST(ingested_at AS TIMESTAMP) AS ingested_at  -- Time of ingestion, UTC.
FROM _staged_counter_files
