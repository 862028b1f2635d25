-- One row: a frame of a stack of a memory snapshot.
-- scope: memory_snapshot
-- check: unique(snapshot_id, stack_id, depth)
SELECT
    CAST(snapshot_id AS VARCHAR) AS snapshot_id,  -- The snapshot.
    CAST(batch_id AS VARCHAR) AS batch_id,  -- Ingest run that wrote it.
    CAST(stack_id AS BIGINT) AS stack_id,  -- The stack.
    CAST(depth AS BIGINT) AS depth,  -- Depth in the stack; 0 is the innermost frame.
    CAST(file AS VARCHAR) AS file,  -- Source file.
    CAST(line AS BIGINT) AS line,  -- Line; NULL if the file has none.
    CAST(function AS VARCHAR) AS function,  -- Function.
    CAST(fx_node AS VARCHAR) AS fx_node  -- Node of the FX graph for this line; NULL if the file has none.
FROM _staged_snapshot_frames
