-- One row: a memory snapshot and a profiler trace of the same rank that was taken while its history was recorded. A
-- snapshot that no trace meets has one row, too.
-- How: equal ranks (or both without one) in one job or one folder, and times that overlap. Both count time from 1970; a
-- trace that does not matches nothing.
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
    m.trace_id,  -- A trace of the same rank and time; NULL where there is none.
    m.start_ns,  -- Start of the time that both cover, ns; NULL where there is no trace.
    m.end_ns  -- End of the time that both cover, ns; NULL where there is no trace.
FROM memory_snapshots AS s
LEFT JOIN met AS m ON m.snapshot_id = s.snapshot_id
