-- One row: a stack of a memory snapshot; its frames are in snapshot_frames.
-- scope: memory_snapshot
-- check: unique(snapshot_id, stack_id)
SELECT
    CAST(snapshot_id AS VARCHAR) AS snapshot_id,  -- The snapshot.
    CAST(batch_id AS VARCHAR) AS batch_id,  -- Ingest run that wrote it.
    CAST(stack_id AS BIGINT) AS stack_id,  -- Number of the stack in this snapshot.
    CAST(n_frames AS BIGINT) AS n_frames,  -- Its frames.
    -- Innermost frame that a person wrote (Python, and of no installed package), else of another package than PyTorch,
    -- else the innermost that neither records the stack nor allocates (stack_frames): `file:line function`; NULL where
    -- there is none.
    CAST(user_frame AS VARCHAR) AS user_frame
FROM _staged_snapshot_stacks
