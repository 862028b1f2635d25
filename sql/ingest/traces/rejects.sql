-- One row: a file that was not ingested, and why.
-- scope: file
SELECT
    CAST(path AS VARCHAR) AS path,  -- The file.
    -- Where reading failed, in bytes of the unpacked content; NULL when it is about the whole file.
    CAST(byte_offset AS BIGINT) AS byte_offset,
    CAST(reason AS VARCHAR) AS reason,  -- Why, and what the file is when it is not a profiler trace.
    CAST(seen_at AS TIMESTAMP) AS seen_at,  -- When it was tried, UTC.
    CAST(batch_id AS VARCHAR) AS batch_id  -- Ingest run that tried to read it.
FROM _staged_rejects
