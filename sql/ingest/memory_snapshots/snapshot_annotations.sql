-- One row: the start or end of an annotation in a memory snapshot (record_function, ProfilerStep). PyTorch records
-- annotations with `global_record_annotations=True`.
-- scope: memory_snapshot
-- check: unique(snapshot_id, place)
SELECT
    CAST(snapshot_id AS VARCHAR) AS snapshot_id,  -- The snapshot.
    CAST(batch_id AS VARCHAR) AS batch_id,  -- Ingest run that wrote it.
    CAST(place AS BIGINT) AS place,  -- Position in the file, from 0.
    CAST(device AS BIGINT) AS device,  -- Current device.
    CAST(name AS VARCHAR) AS name,  -- Name of the annotation.
    CAST(stage AS VARCHAR) AS stage,  -- START or END.
    CAST(at_ns AS BIGINT) AS at_ns  -- Time, ns since the Unix epoch, to the us.
FROM _staged_snapshot_annotations
