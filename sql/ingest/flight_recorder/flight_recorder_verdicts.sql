-- One row: a process group of a set of dumps, with the first collective on which its ranks disagree.
-- How: apply the rules of pipelines/readers/flight_recorder/findings.py at the first sequence number with a mismatch.
-- No rank serves as the reference. A send or receive that waits counts if it came first.
-- scope: dump
-- check: unique(set_id, group_name, group_ranks)
SELECT
    CAST(set_id AS VARCHAR) AS set_id,  -- The set of dumps, in flight_recorder_dumps.
    CAST(batch_id AS VARCHAR) AS batch_id,  -- Ingest run that wrote it.
    CAST(group_name AS VARCHAR) AS group_name,  -- Process group.
    CAST(group_description AS VARCHAR) AS group_description,  -- Description of the group, set by its creator.
    CAST(group_ranks AS VARCHAR) AS group_ranks,  -- Ranks of the group, as a JSON list.
    CAST(dump_missing AS VARCHAR) AS dump_missing,  -- Ranks of the group without a dump, as a JSON list.
    CAST(first_seq AS BIGINT) AS first_seq,  -- First number that all rings still contain; NULL if no ring contains any.
    CAST(last_seq AS BIGINT) AS last_seq,  -- Last number that any rank called; NULL if no rank did.
    -- missing_rank, op_mismatch, size_mismatch, dtype_mismatch, state_split, not_started, all_joined_not_completed,
    -- missing_peer or transfer_not_completed; NULL without a mismatch (flight_recorder_dumps.verdict states whether the
    -- set is healthy).
    CAST(kind AS VARCHAR) AS kind,
    CAST(seq AS BIGINT) AS seq,  -- Number of the mismatched call; NULL without a finding.
    CAST(op AS VARCHAR) AS op,  -- Operation; NULL if the ranks disagree on it.
    CAST(culprits AS VARCHAR) AS culprits,  -- Ranks at fault, as a JSON list; NULL without a finding.
    CAST(waiting AS VARCHAR) AS waiting,  -- Ranks that wait for the culprits, as a JSON list; NULL without a finding.
    CAST(state AS VARCHAR) AS state,  -- State of the call; NULL unless it is the same on all ranks.
    CAST(created_ns AS BIGINT) AS created_ns,  -- Time of the first rank's call, ns since the Unix epoch.
    CAST(confidence AS VARCHAR) AS confidence,  -- high, or low with its reasons; NULL without a finding.
    -- Frame of each rank's call: a JSON object, rank to frame; NULL without a finding.
    CAST(frames AS VARCHAR) AS frames,
    -- Last call of each rank that did not make the call: a JSON object, rank to call; NULL without a finding.
    CAST(last_calls AS VARCHAR) AS last_calls,
    -- Longest possible wait of a rank at the dump, ns, from the call to the time of the newest file; NULL without a
    -- finding, or if the clocks do not fit.
    CAST(waited_ns AS BIGINT) AS waited_ns,
    CAST(timeout_ns AS BIGINT) AS timeout_ns,  -- Timeout of the call, ns; NULL if the dump does not record it.
    -- Whether the timeout had not expired, so that a merely late rank would look the same; NULL without a finding.
    CAST(may_be_slow AS BOOLEAN) AS may_be_slow,
    -- Whether the group's ranks are inferred from the calls in it, because no dump lists them.
    CAST(is_inferred AS BOOLEAN) AS is_inferred,
    CAST(n_unfinished AS BIGINT) AS n_unfinished,  -- Number of calls in the rings that are not over.
    -- Whether the other findings of the set follow from this finding. It is the first finding whose culprits do not
    -- wait in another group or, if the findings form a cycle, the first finding.
    CAST(is_root AS BOOLEAN) AS is_root
FROM _staged_flight_recorder_verdicts
