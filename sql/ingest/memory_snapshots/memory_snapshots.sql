-- One row: a CUDA memory snapshot (torch.cuda.memory._dump_snapshot): the state of the caching allocator and, if
-- recorded, the history of its events. This table is the commit marker of snapshots: rows of the other snapshot tables
-- count only if their snapshot is in it.
-- scope: memory_snapshot
-- key: snapshot_id
-- check: unique(snapshot_id)
SELECT
    CAST(snapshot_id AS VARCHAR) AS snapshot_id,  -- First 16 hex digits of the SHA-256 of the decompressed content.
    CAST(batch_id AS VARCHAR) AS batch_id,  -- Ingest run that wrote it.
    CAST(path AS VARCHAR) AS path,  -- Path of the file.
    regexp_extract(CAST(path AS VARCHAR), '[^/\\]*$') AS file,  -- File name without the folder.
    regexp_replace(CAST(path AS VARCHAR), '[/\\][^/\\]*$', '') AS folder,  -- Its folder.
    CAST(rank AS BIGINT) AS rank,  -- Rank in the file name; NULL if it has none.
    CAST(job AS VARCHAR) AS job,  -- Job name, set at ingestion or taken from the path; NULL if unknown.
    -- Time of the first event of its history, ns since the Unix epoch; NULL without a history.
    CAST(first_event_ns AS BIGINT) AS first_event_ns,
    -- Time of the last event of its history, ns since the Unix epoch; NULL without a history.
    CAST(last_event_ns AS BIGINT) AS last_event_ns,
    CAST(n_events AS BIGINT) AS n_events,  -- Number of events of its history; 0 if not recorded.
    CAST(n_segments AS BIGINT) AS n_segments,  -- Number of segments of the allocator.
    CAST(n_blocks AS BIGINT) AS n_blocks,  -- Number of blocks in the segments, in use or free.
    CAST(n_stacks AS BIGINT) AS n_stacks,  -- Number of distinct stacks; 0 if not recorded.
    CAST(n_annotations AS BIGINT) AS n_annotations,  -- Number of starts and ends of annotations.
    -- Number of events of unknown kind. They are in snapshot_events, but do not affect other tables.
    CAST(n_unknown_actions AS BIGINT) AS n_unknown_actions,
    CAST(has_annotations AS BOOLEAN) AS has_annotations,  -- Whether its PyTorch supports annotations (2.6 and later).
    -- Settings of the allocator (PYTORCH_CUDA_ALLOC_CONF), JSON; NULL if the file has none.
    CAST(allocator_settings AS VARCHAR) AS allocator_settings,
    CAST(unpacked_bytes AS BIGINT) AS unpacked_bytes,  -- Size of the decompressed pickle, bytes.
    CAST(ingested_at AS TIMESTAMP) AS ingested_at  -- Time of ingestion, UTC.
FROM _staged_memory_snapshots
