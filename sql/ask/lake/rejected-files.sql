-- Question: Which files were not ingested, and why?
-- Reading: One row per file, without those that were ingested since. Repair or delete the file, then ingest it again.
-- The reason contains the position in the file.
SELECT r.path, r.byte_offset, r.reason, r.seen_at
FROM rejects AS r
WHERE
    NOT contains(r.reason, 'superseded by trace')  -- was ingested, but a better trace of the same events is shown
    AND NOT EXISTS (
        -- A batch may ingest one trace of a file and reject another. A batch id begins with the time at which the batch
        -- began, which is before seen_at for the same batch. compact may have given two batches the same batch_id.
        SELECT 1
        FROM traces AS later
        WHERE
            later.path = r.path AND later.ingested_at > r.seen_at
            AND (
                later.batch_id <> r.batch_id
                OR TRY_CAST(
                    concat(
                        substr(later.ingest_batch_id, 1, 4), '-', substr(later.ingest_batch_id, 5, 2), '-',
                        substr(later.ingest_batch_id, 7, 2), ' ', substr(later.ingest_batch_id, 10, 2), ':',
                        substr(later.ingest_batch_id, 12, 2), ':', substr(later.ingest_batch_id, 14, 2), '.',
                        substr(later.ingest_batch_id, 16, 6)
                    ) AS TIMESTAMP
                ) > r.seen_at
            )
    )
QUALIFY row_number() OVER (PARTITION BY r.path ORDER BY r.seen_at DESC, r.reason) = 1
ORDER BY r.seen_at DESC, r.path
