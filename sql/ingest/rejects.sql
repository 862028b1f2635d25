-- One row: a file that did not go in, and why.
SELECT
    path,  -- The file.
    CAST(byte_offset AS BIGINT) AS byte_offset,  -- Where reading it failed, in bytes of unpacked content; NULL when the whole file is meant.
    reason,  -- Why, and what the file is when it is no profiler trace.
    CAST(seen_at AS TIMESTAMP) AS seen_at,  -- When it was tried, UTC.
    batch_id  -- Ingest run that tried it.
FROM _rejected_files
