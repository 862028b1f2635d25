-- One row: a process group of a set of dumps, with the first collective that its ranks do not agree on.
-- How: the rules of pipelines/readers/flight_recorder/findings.py, at the first number that is wrong; no rank serves
-- as the reference. A send or receive that waits counts where it came first.
-- scope: dump
-- check: unique(set_id, group_name, group_ranks)
SELECT
    CAST(set_id AS VARCHAR) AS set_id,  -- The set of dumps, in flight_recorder_dumps.
    CAST(batch_id AS VARCHAR) AS batch_id,  -- Ingest run that wrote it.
    CAST(group_name AS VARCHAR) AS group_name,  -- Process group.
    CAST(group_description AS VARCHAR) AS group_description,  -- Its description, as its creator gave it.
    CAST(group_ranks AS VARCHAR) AS group_ranks,  -- Its ranks, as a JSON list.
    CAST(dump_missing AS VARCHAR) AS dump_missing,  -- Its ranks without a dump, as a JSON list.
    CAST(first_seq AS BIGINT) AS first_seq,  -- First number that all rings still hold; NULL where none holds any.
    CAST(last_seq AS BIGINT) AS last_seq,  -- Last number that some rank called; NULL where none did.
    -- missing_rank, op_mismatch, size_mismatch, dtype_mismatch, state_split, not_started, all_joined_not_completed,
    -- missing_peer or transfer_not_completed; NULL: no mismatch (flight_recorder_dumps.verdict says whether that is
    -- healthy).
    CAST(kind AS VARCHAR) AS kind,
    CAST(seq AS BIGINT) AS seq,  -- At which number; NULL without a finding.
    CAST(op AS VARCHAR) AS op,  -- The operation; NULL where the ranks do not agree on it.
    CAST(culprits AS VARCHAR) AS culprits,  -- Ranks at fault, as a JSON list; NULL without a finding.
    CAST(waiting AS VARCHAR) AS waiting,  -- Ranks that wait for them, as a JSON list; NULL without a finding.
    CAST(state AS VARCHAR) AS state,  -- State of the call, where it is the same on all ranks.
    CAST(created_ns AS BIGINT) AS created_ns,  -- When the first rank called it, ns since the Unix epoch.
    CAST(confidence AS VARCHAR) AS confidence,  -- high, or low with its reason; NULL without a finding.
    -- Where each rank called it: a JSON object, rank to frame; NULL without a finding.
    CAST(frames AS VARCHAR) AS frames,
    -- What ranks that did not call it called last: a JSON object, rank to call; NULL without a finding.
    CAST(last_calls AS VARCHAR) AS last_calls,
    -- Longest that a rank can have waited when it was dumped, ns: from the call to the time of the newest file; NULL
    -- without a finding, or where the clocks do not fit.
    CAST(waited_ns AS BIGINT) AS waited_ns,
    CAST(timeout_ns AS BIGINT) AS timeout_ns,  -- Timeout of the call, ns; NULL where the dump does not say.
    -- The timeout had not expired, so a rank that is merely late would look the same; NULL without a finding.
    CAST(may_be_slow AS BOOLEAN) AS may_be_slow,
    -- No dump lists the group's ranks: they are taken to be those that called something in it.
    CAST(is_inferred AS BOOLEAN) AS is_inferred,
    CAST(n_unfinished AS BIGINT) AS n_unfinished,  -- Calls in the rings that are not over.
    -- The other findings of the set follow from this one: the first that does not blame a rank which waits in another
    -- group; if the findings form a circle, the first.
    CAST(is_root AS BOOLEAN) AS is_root
FROM _staged_flight_recorder_verdicts
