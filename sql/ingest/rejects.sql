-- One row: a file that did not go in, and why.
-- scope: file
SELECT
    CAST(path AS VARCHAR) AS path,  -- The file.
    CAST(byte_offset AS BIGINT) AS byte_offset,  -- Where reading it failed, in bytes of unpacked content; NULL when the whole file is meant.
    CAST(reason AS VARCHAR) AS reason,  -- Why, and what the file is when it is no profiler trace.
    CAST(seen_at AS TIMESTAMP) AS seen_at,  -- When it was tried, UTC.
    CAST(batch_id AS VARCHAR) AS batch_id  -- Ingest run that tried it.
FROM _staged_rejects
