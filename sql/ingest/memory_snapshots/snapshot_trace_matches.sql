-- One row: a memory snapshot and a profiler trace of the same rank, recorded during the snapshot's history. A snapshot
-- without such a trace has one row, too.
-- How: match equal ranks (or both unknown) in one job or one folder, with overlapping times. Times count from 1970, so
-- a trace with any other time base has no match.
-- scope: lake
WITH met AS (
    SELECT
        s.snapshot_id, t.trace_id,
        greatest(s.first_event_ns, t.trace_start_ns) AS start_ns,
        least(s.last_event_ns, t.trace_end_ns) AS end_ns
    FROM memory_snapshots AS s
    JOIN traces AS t
        ON t.rank IS NOT DISTINCT FROM s.rank
            AND (t.job = s.job OR regexp_replace(t.path, '[/\\][^/\\]*$', '') = s.folder)
            AND t.trace_start_ns <= s.last_event_ns AND t.trace_end_ns >= s.first_event_ns
)
SELECT
    s.snapshot_id,  -- The snapshot.
    m.trace_id,  -- Trace of the same rank and time; NULL if there is none.
    m.start_ns,  -- Start of the overlap, ns; NULL without a trace.
    m.end_ns  -- End of the overlap, ns; NULL without a trace.
FROM memory_snapshots AS s
LEFT JOIN met AS m ON m.snapshot_id = s.snapshot_id
