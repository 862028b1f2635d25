-- One row: a CUDA memory snapshot (torch.cuda.memory._dump_snapshot): what the caching allocator held when it was
-- taken, and, where that was recorded, how it came to it. This table is the commit mark of snapshots: rows of the other
-- snapshot tables count only where their snapshot is here.
-- scope: memory_snapshot
-- key: snapshot_id
-- check: unique(snapshot_id)
SELECT
    CAST(snapshot_id AS VARCHAR) AS snapshot_id,  -- First 16 hex digits of the SHA-256 of the unpacked content.
    CAST(batch_id AS VARCHAR) AS batch_id,  -- Ingest run that wrote it.
    CAST(path AS VARCHAR) AS path,  -- The file.
    regexp_extract(CAST(path AS VARCHAR), '[^/\\]*$') AS file,  -- Its name without the folder.
    regexp_replace(CAST(path AS VARCHAR), '[/\\][^/\\]*$', '') AS folder,  -- Its folder.
    CAST(rank AS BIGINT) AS rank,  -- Rank in the file's name; NULL where it has none.
    CAST(job AS VARCHAR) AS job,  -- Job name, given at ingestion or from the path; NULL when unknown.
    -- First event of its history, ns since the Unix epoch; NULL without a history.
    CAST(first_event_ns AS BIGINT) AS first_event_ns,
    -- Last event of its history, ns since the Unix epoch; NULL without a history.
    CAST(last_event_ns AS BIGINT) AS last_event_ns,
    CAST(n_events AS BIGINT) AS n_events,  -- Events of its history: 0 where history was not recorded.
    CAST(n_segments AS BIGINT) AS n_segments,  -- Segments that the allocator held.
    CAST(n_blocks AS BIGINT) AS n_blocks,  -- Blocks in them, in use or free.
    CAST(n_stacks AS BIGINT) AS n_stacks,  -- Different stacks: 0 where stacks were not recorded.
    CAST(n_annotations AS BIGINT) AS n_annotations,  -- Beginnings and ends of annotations.
    -- Events of a kind that this version does not know: they are in snapshot_events, and count for nothing.
    CAST(n_unknown_actions AS BIGINT) AS n_unknown_actions,
    CAST(has_annotations AS BOOLEAN) AS has_annotations,  -- Its PyTorch knows annotations (2.6 and later).
    -- Settings of the allocator (PYTORCH_CUDA_ALLOC_CONF), JSON; NULL where the file has none.
    CAST(allocator_settings AS VARCHAR) AS allocator_settings,
    CAST(unpacked_bytes AS BIGINT) AS unpacked_bytes,  -- Bytes of the pickle.
    CAST(ingested_at AS TIMESTAMP) AS ingested_at  -- When it was ingested, UTC.
FROM _staged_memory_snapshots
