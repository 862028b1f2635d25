-- One row: a file that was not ingested, with the reason.
-- scope: file
SELECT
    CAST(path AS VARCHAR) AS path,  -- Path of the file.
    -- Offset where reading failed, in bytes of the decompressed content; NULL if the reason concerns the whole file.
    CAST(byte_offset AS BIGINT) AS byte_offset,
    CAST(reason AS VARCHAR) AS reason,  -- Reason, and the kind of file if it is not a profiler trace.
    CAST(seen_at AS TIMESTAMP) AS seen_at,  -- Time of the attempt, UTC.
    CAST(batch_id AS VARCHAR) AS batch_id  -- Ingest run that tried to read it.
FROM _staged_rejects
