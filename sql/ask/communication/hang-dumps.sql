-- Question: Which Flight Recorder dumps belong to which traces, and do they show where the job hung?
-- Reading: One row per set of dumps with a trace of one of its ranks; table `flight_recorder_dumps` also has sets
-- without traces. `n_found` of the `n_calls` calls of these ranks are found in the traces, with at least this
-- confidence. `verdict` and `doubts` apply to the whole set. Table `flight_recorder_verdicts` lists the missing ranks
-- and the waiting ranks.
-- Words: hang, stuck, NCCL timeout
WITH sets AS (
    SELECT set_id, min(folder) AS folder, count(*) AS n_dumps, min(verdict) AS verdict, min(doubts) AS doubts
    FROM flight_recorder_dumps
    GROUP BY set_id
),
-- A call is matched in each trace of its rank, of which there may be several.
calls AS (
    SELECT
        set_id, trace_id, event_id, confidence, CAST(rank AS VARCHAR) || ' ' || CAST(record_id AS VARCHAR) AS call
    FROM flight_recorder_matches
)
SELECT
    min(coalesce(t.job, t.file)) AS job, s.folder, s.n_dumps, count(DISTINCT m.call) AS n_calls,
    count(DISTINCT CASE WHEN m.event_id IS NOT NULL THEN m.call END) AS n_found,
    min(m.confidence) AS least_confidence, s.verdict, s.doubts, m.set_id
FROM calls AS m
JOIN traces AS t ON m.trace_id = t.trace_id
JOIN sets AS s ON m.set_id = s.set_id
GROUP BY m.set_id, s.folder, s.n_dumps, s.verdict, s.doubts
ORDER BY s.folder, m.set_id
