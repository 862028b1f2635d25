-- One row: an inferred wait in a window: GPU work or a CPU call that waited for GPU work, although no cuda_sync row
-- records it.
-- How: restrict _inferred_waits to the window. A wait explains the time until the awaited work ended. The remaining
-- time (a gap before GPU work, a call's self time) keeps its weight. Materialized, as in _call_waits: DuckDB may
-- otherwise join each wait with each window of its trace first.
WITH calls AS MATERIALIZED (
    SELECT c.window_no, w.trace_profile_id, c.event_id, c.start_ns + c.duration_ns AS end_ns
    FROM _clip AS c
    JOIN _asked_windows AS w ON w.window_no = c.window_no
    WHERE c.is_operator
)
SELECT
    k.window_no,  -- The window.
    k.source_event_id AS src_event_id,  -- GPU work that had to end.
    k.source_in_window AS src_in_window,  -- That work belongs to the window; else this row is not an edge.
    k.source_end_ns AS src_ns,  -- End of that work, ns.
    k.event_id AS dst_event_id,  -- GPU work or CPU call that waited.
    TRUE AS dst_is_start,  -- TRUE: the start of GPU work; FALSE: the end of a CPU call.
    greatest(k.start_ns - k.source_end_ns, 0) AS weight_ns  -- From the end of that work to the destination, ns.
FROM _kernel_waits AS k
WHERE k.is_inferred
UNION ALL
SELECT
    c.window_no, i.source_event_id, s.event_id IS NOT NULL, i.source_end_ns, c.event_id, FALSE,
    greatest(c.end_ns - i.source_end_ns, 0)
FROM _inferred_waits AS i
JOIN calls AS c ON c.trace_profile_id = i.trace_profile_id AND c.event_id = i.event_id
LEFT JOIN _clip AS s ON s.window_no = c.window_no AND s.event_id = i.source_event_id AND s.side = 'gpu'
WHERE i.is_call
