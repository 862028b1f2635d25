-- One row: a collective or point-to-point call in the ring of a rank's Flight Recorder.
-- scope: dump
-- check: unique(set_id, rank, record_id)
SELECT
    CAST(set_id AS VARCHAR) AS set_id,  -- The set of dumps, in flight_recorder_dumps.
    CAST(batch_id AS VARCHAR) AS batch_id,  -- Ingest run that wrote it.
    CAST(rank AS BIGINT) AS rank,  -- Rank that made the call.
    CAST(record_id AS BIGINT) AS record_id,  -- Number of the call on its rank.
    CAST(group_name AS VARCHAR) AS group_name,  -- Process group.
    CAST(group_description AS VARCHAR) AS group_description,  -- Description of the group, set by its creator.
    -- Ranks of the group, as a JSON list; NULL if the call matches no process group of the set.
    CAST(group_ranks AS VARCHAR) AS group_ranks,
    CAST(seq AS BIGINT) AS seq,  -- Number of the collective within the group.
    CAST(p2p_seq AS BIGINT) AS p2p_seq,  -- Number of the point-to-point call within the group.
    CAST(op AS VARCHAR) AS op,  -- Operation, without its backend.
    CAST(backend AS VARCHAR) AS backend,  -- nccl, xccl, …; NULL if the dump does not record it.
    CAST(is_p2p AS BOOLEAN) AS is_p2p,  -- Whether the call is point-to-point.
    CAST(state AS VARCHAR) AS state,  -- scheduled, started or completed; always scheduled for Gloo.
    CAST(created_ns AS BIGINT) AS created_ns,  -- Time of the call, ns since the Unix epoch.
    -- Time at which a watchdog noticed the start, ns, late by up to the watchdog's period; NULL if not noticed.
    CAST(start_ns AS BIGINT) AS start_ns,
    -- Time at which a watchdog noticed the completion, ns, equally late; NULL if not noticed.
    CAST(completed_ns AS BIGINT) AS completed_ns,
    CAST(duration_ns AS BIGINT) AS duration_ns,  -- Time on the device, ns; NULL if timing was off.
    CAST(timeout_ns AS BIGINT) AS timeout_ns,  -- Timeout, ns.
    CAST(is_retired AS BOOLEAN) AS is_retired,  -- Whether the backend has retired the call.
    -- Whether the call completed. For Gloo, which records no states: whether it ended, with or without an error. The
    -- parts of a coalesced call have no state; the row of the coalesced call has it.
    CAST(is_over AS BOOLEAN) AS is_over,
    CAST(input_sizes AS VARCHAR) AS input_sizes,  -- Sizes of the inputs, as JSON lists.
    CAST(output_sizes AS VARCHAR) AS output_sizes,  -- Sizes of the outputs, as JSON lists.
    CAST(input_dtypes AS VARCHAR) AS input_dtypes,  -- Types of the inputs, as a JSON list.
    CAST(output_dtypes AS VARCHAR) AS output_dtypes,  -- Types of the outputs, as a JSON list.
    CAST(in_elements AS BIGINT) AS in_elements,  -- Number of elements of all inputs.
    CAST(out_elements AS BIGINT) AS out_elements,  -- Number of elements of all outputs.
    -- Innermost Python frame of user code. Without one, a frame of a package other than PyTorch; else the innermost
    -- frame that does not record the stack. NULL if the dump has no frames (JSON).
    CAST(frame AS VARCHAR) AS frame
FROM _staged_flight_recorder_entries
