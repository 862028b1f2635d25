-- One row: a capture of a CUDA or HIP graph: a begin and the next end on its thread, by name (rules/capture_calls.csv).
-- check: unique(trace_id, event_id)
-- A call of code that is built with a default stream per thread has a suffix, as in _loaded_events.
WITH names AS (
    SELECT name || unnest(['', '_ptsz', '_ptds', '_spt']) AS name, role
    FROM capture_calls
    WHERE role IN ('begin', 'end')
),
marks AS (
    SELECT e.trace_id, e.event_id, t.thread_id, e.start_ns, e.end_ns, r.role
    FROM events AS e
    JOIN names AS r ON r.name = e.name
    JOIN threads AS t ON t.trace_id = e.trace_id AND t.pid = e.pid AND t.tid = e.tid
    WHERE e.duration_ns IS NOT NULL AND e.start_ns IS NOT NULL
),
ordered AS (
    SELECT
        trace_id, event_id, thread_id, role, end_ns AS begun_ns,
        lead(role) OVER thread AS next_role,
        lead(start_ns) OVER thread AS stop_ns
    FROM marks
    WINDOW thread AS (PARTITION BY trace_id, thread_id ORDER BY start_ns, event_id)
)
SELECT
    trace_id,  -- The trace.
    event_id,  -- The call that began the capture.
    thread_id,  -- Its thread.
    begun_ns,  -- End of that call, ns.
    stop_ns  -- Start of the call that ended the capture, ns.
FROM ordered
WHERE role = 'begin' AND next_role = 'end' AND stop_ns > begun_ns
