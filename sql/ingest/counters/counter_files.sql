-- One row: a file of hardware counters (rocprofv3's counter collection, `ncu --csv`, a trace of Kineto's range
-- profiler). Counters are usually of another run than the timing, so such a file is kept and answers alone.
-- This table is the commit mark of counters: rows of the other counter tables count only where their file is here.
-- scope: counters
-- key: trace_id
-- check: unique(trace_id)
SELECT
    -- First 16 hex digits of the SHA-256 of its content; for a trace the trace's id.
    CAST(trace_id AS VARCHAR) AS trace_id,
    CAST(batch_id AS VARCHAR) AS batch_id,  -- Ingest run that wrote it.
    CAST(path AS VARCHAR) AS path,  -- The file.
    regexp_extract(CAST(path AS VARCHAR), '[^/\\]*$') AS file,  -- Its name without the folder.
    CAST(job AS VARCHAR) AS job,  -- Job name, given at ingestion or from the path; NULL when unknown.
    CAST(n_lines AS BIGINT) AS n_lines,  -- Lines that were read, the first among them; of a trace its events.
    CAST(n_counters AS BIGINT) AS n_counters,  -- Its rows in kernel_counters.
    CAST(unpacked_bytes AS BIGINT) AS unpacked_bytes,  -- Bytes of its content.
    CAST(ingested_at AS TIMESTAMP) AS ingested_at  -- When it was ingested, UTC.
FROM _staged_counter_files
