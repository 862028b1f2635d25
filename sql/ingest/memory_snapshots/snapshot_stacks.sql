-- One row: a stack of a memory snapshot; its frames are in snapshot_frames.
-- scope: memory_snapshot
-- check: unique(snapshot_id, stack_id)
SELECT
    CAST(snapshot_id AS VARCHAR) AS snapshot_id,  -- The snapshot.
    CAST(batch_id AS VARCHAR) AS batch_id,  -- Ingest run that wrote it.
    CAST(stack_id AS BIGINT) AS stack_id,  -- Number of the stack in this snapshot.
    CAST(n_frames AS BIGINT) AS n_frames,  -- Number of frames.
    -- Innermost frame of user code (Python, outside installed packages), as `file:line function`. Without one, a frame
    -- of a package other than PyTorch; else the innermost frame that neither records the stack nor allocates
    -- (stack_frames). NULL if there is none.
    CAST(user_frame AS VARCHAR) AS user_frame
FROM _staged_snapshot_stacks
