-- One row: a rank's Flight Recorder dump. The dumps of a folder form a set. This table is the commit marker of sets:
-- rows of the other Flight Recorder tables count only if their set is in it.
-- scope: dump
-- key: set_id
-- check: unique(set_id, rank)
SELECT
    CAST(set_id AS VARCHAR) AS set_id,  -- Set of dumps from one folder: hash of ranks and contents.
    CAST(batch_id AS VARCHAR) AS batch_id,  -- Ingest run that wrote it.
    CAST(rank AS BIGINT) AS rank,  -- Rank, from the file name.
    CAST(job AS VARCHAR) AS job,  -- Job name, set at ingestion; NULL if none was set.
    CAST(folder AS VARCHAR) AS folder,  -- Folder of the set.
    CAST(path AS VARCHAR) AS path,  -- Path of the file.
    CAST(version AS VARCHAR) AS version,  -- Version of the format.
    -- Version of NCCL or a similar library; NULL if the dump does not record it.
    CAST(communication_library_version AS VARCHAR) AS communication_library_version,
    CAST(n_entries AS BIGINT) AS n_entries,  -- Number of calls in its ring.
    -- Number of calls that match no process group of the set, so they are not compared.
    CAST(n_unplaced AS BIGINT) AS n_unplaced,
    -- Verdict on the whole set: hang, no_mismatch, or undecided (no mismatch, but not known to be healthy).
    CAST(verdict AS VARCHAR) AS verdict,
    CAST(doubts AS VARCHAR) AS doubts,  -- Reasons why the set cannot be called healthy, as a JSON list of sentences.
    -- Last enqueued, started and completed number of each process group in the dump, JSON; NULL if the dump has none.
    CAST(pg_status AS VARCHAR) AS pg_status,
    -- State that the communication library reports (nccl_comm_state), JSON; NULL if the dump has none.
    CAST(communication_state AS VARCHAR) AS communication_state,
    -- Time of ingestion, UTC. Of several sets of a folder, the last is the most complete.
    CAST(ingested_at AS TIMESTAMP) AS ingested_at
FROM _staged_flight_recorder_dumps
