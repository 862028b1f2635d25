-- Question: Which files were not ingested, and why?
-- Reading: One row per file. Repair or delete the file, then ingest it again. The reason contains the position in the
-- file.
SELECT path, byte_offset, reason, seen_at
FROM rejects
ORDER BY seen_at DESC, path
