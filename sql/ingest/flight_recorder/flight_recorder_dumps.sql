-- One row: a rank's Flight Recorder dump; the dumps of a folder are one set. This table is the commit mark of sets:
-- rows of the other tables of dumps count only where their set is here.
-- scope: dump
-- key: set_id
-- check: unique(set_id, rank)
SELECT
    CAST(set_id AS VARCHAR) AS set_id,  -- The dumps that were found together in a folder: hash over ranks and contents.
    CAST(batch_id AS VARCHAR) AS batch_id,  -- Ingest run that wrote it.
    CAST(rank AS BIGINT) AS rank,  -- Rank, from the file's name.
    CAST(job AS VARCHAR) AS job,  -- Name of the job, as given at ingestion; NULL where none was.
    CAST(folder AS VARCHAR) AS folder,  -- The folder of the set.
    CAST(path AS VARCHAR) AS path,  -- The file.
    CAST(version AS VARCHAR) AS version,  -- Version of the format.
    -- Version of NCCL or a similar library; NULL where the dump does not say.
    CAST(communication_library_version AS VARCHAR) AS communication_library_version,
    CAST(n_entries AS BIGINT) AS n_entries,  -- Calls in its ring.
    CAST(n_unplaced AS BIGINT) AS n_unplaced,  -- Calls that fit no process group of the set: they are not compared.
    -- Of the whole set: hang, no_mismatch, or undecided: no mismatch, but not known to be healthy.
    CAST(verdict AS VARCHAR) AS verdict,
    CAST(doubts AS VARCHAR) AS doubts,  -- Why the set cannot be called healthy, as a JSON list of sentences.
    -- Last enqueued, started and completed number of its process groups, as the dump has them, JSON; NULL where it has
    -- none.
    CAST(pg_status AS VARCHAR) AS pg_status,
    -- State that the communication library reports (nccl_comm_state), JSON; NULL where the dump has none.
    CAST(communication_state AS VARCHAR) AS communication_state,
    -- When it was ingested, UTC: of several sets of a folder, the last knows most.
    CAST(ingested_at AS TIMESTAMP) AS ingested_at
FROM _staged_flight_recorder_dumps
