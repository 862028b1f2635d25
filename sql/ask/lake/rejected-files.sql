-- Question: Which files were not ingested, and why?
-- Reading: One row per file. Mend or delete the file, then ingest it again; the reason names the place in it.
SELECT path, byte_offset, reason, seen_at
FROM rejects
ORDER BY seen_at DESC, path
