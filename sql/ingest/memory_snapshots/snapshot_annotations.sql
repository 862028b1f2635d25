-- One row: the beginning or end of an annotation in a memory snapshot (record_function, ProfilerStep), which PyTorch
-- writes with `global_record_annotations=True`.
-- scope: memory_snapshot
-- check: unique(snapshot_id, place)
SELECT
    CAST(snapshot_id AS VARCHAR) AS snapshot_id,  -- The snapshot.
    CAST(batch_id AS VARCHAR) AS batch_id,  -- Ingest run that wrote it.
    CAST(place AS BIGINT) AS place,  -- Place in the file, from 0.
    CAST(device AS BIGINT) AS device,  -- Device that was current.
    CAST(name AS VARCHAR) AS name,  -- Its name.
    CAST(stage AS VARCHAR) AS stage,  -- START or END.
    CAST(at_ns AS BIGINT) AS at_ns  -- When, ns since the Unix epoch, to the us.
FROM _staged_snapshot_annotations
