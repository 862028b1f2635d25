-- One row: a collective or point-to-point call in the ring of a rank's Flight Recorder.
-- scope: dump
-- check: unique(set_id, rank, record_id)
SELECT
    CAST(set_id AS VARCHAR) AS set_id,  -- The set of dumps, in flight_recorder_dumps.
    CAST(batch_id AS VARCHAR) AS batch_id,  -- Ingest run that wrote it.
    CAST(rank AS BIGINT) AS rank,  -- The rank that called.
    CAST(record_id AS BIGINT) AS record_id,  -- Number of the call on its rank.
    CAST(group_name AS VARCHAR) AS group_name,  -- Process group.
    CAST(group_description AS VARCHAR) AS group_description,  -- Its description, as its creator gave it.
    -- Its ranks, as a JSON list; NULL where the call fits no process group of the set.
    CAST(group_ranks AS VARCHAR) AS group_ranks,
    CAST(seq AS BIGINT) AS seq,  -- Number of the collective within the group.
    CAST(p2p_seq AS BIGINT) AS p2p_seq,  -- Number of the point-to-point call within the group.
    CAST(op AS VARCHAR) AS op,  -- Operation, without its backend.
    CAST(backend AS VARCHAR) AS backend,  -- nccl, xccl, …; NULL where the dump does not say.
    CAST(is_p2p AS BOOLEAN) AS is_p2p,  -- Point to point.
    CAST(state AS VARCHAR) AS state,  -- scheduled, started or completed; Gloo says scheduled for all.
    CAST(created_ns AS BIGINT) AS created_ns,  -- When it was called, ns since the Unix epoch.
    -- When a watchdog noticed that it had started, ns: late by up to the watchdog's period; NULL where none did.
    CAST(start_ns AS BIGINT) AS start_ns,
    -- When a watchdog noticed that it had completed, ns: late likewise; NULL where none did.
    CAST(completed_ns AS BIGINT) AS completed_ns,
    CAST(duration_ns AS BIGINT) AS duration_ns,  -- Time on the device, ns; NULL where timing was off.
    CAST(timeout_ns AS BIGINT) AS timeout_ns,  -- Timeout, ns.
    CAST(is_retired AS BOOLEAN) AS is_retired,  -- The backend is done with it.
    -- It completed; with Gloo, which has no states: it ended, with or without an error. The parts of a coalesced call
    -- have no state: the row of the coalesced call has it.
    CAST(is_over AS BOOLEAN) AS is_over,
    CAST(input_sizes AS VARCHAR) AS input_sizes,  -- Sizes of the inputs, as JSON lists.
    CAST(output_sizes AS VARCHAR) AS output_sizes,  -- Sizes of the outputs, as JSON lists.
    CAST(input_dtypes AS VARCHAR) AS input_dtypes,  -- Their types, as a JSON list.
    CAST(output_dtypes AS VARCHAR) AS output_dtypes,  -- Types of the outputs, as a JSON list.
    CAST(in_elements AS BIGINT) AS in_elements,  -- Elements of all inputs.
    CAST(out_elements AS BIGINT) AS out_elements,  -- Elements of all outputs.
    -- First Python frame of the call that a person wrote, else of another package than PyTorch, else the innermost that
    -- does not record the stack; NULL where the dump has none (JSON).
    CAST(frame AS VARCHAR) AS frame
FROM _staged_flight_recorder_entries
