-- One row: the recording of a CUDA or HIP graph on a thread, from the call that begins it to the next call that ends
-- it.
-- How: calls by name (capture_calls), with any of call_suffixes.
-- check: unique(trace_id, event_id)
WITH names AS (
    SELECT concat(c.name, s.suffix) AS name, c.role
    FROM capture_calls AS c
    CROSS JOIN call_suffixes AS s
    WHERE c.role IN ('begin', 'end')
),
marks AS (
    SELECT e.trace_id, e.event_id, e.pid, e.tid, e.start_ns, e.end_ns, r.role
    FROM events AS e
    JOIN names AS r ON r.name = e.name
    WHERE e.duration_ns IS NOT NULL AND e.start_ns IS NOT NULL
),
ordered AS (
    SELECT
        trace_id, event_id, pid, tid, role, end_ns AS begun_ns,
        lead(role) OVER thread AS next_role,
        lead(start_ns) OVER thread AS stop_ns
    FROM marks
    WINDOW thread AS (PARTITION BY trace_id, pid, tid ORDER BY start_ns, event_id)
)
SELECT
    trace_id,  -- The trace.
    event_id,  -- The call that began the capture.
    pid,  -- Its process.
    tid,  -- Its thread.
    begun_ns,  -- End of that call, ns.
    stop_ns  -- Start of the call that ended the capture, ns.
FROM ordered
WHERE role = 'begin' AND next_role = 'end' AND stop_ns > begun_ns
