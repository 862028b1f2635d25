-- One row: a window of a trace as it was asked for, before it is known what ran in it (critical_path_windows).
-- How: without an annotation, the whole trace; else _annotated_windows.
WITH asked AS (
    SELECT w.*, p.trace_profile_id, p.covers_window
    FROM window_requests AS w
    JOIN _profiles AS p ON p.trace_id = w.trace_id AND p.profile = w.profile
),
whole AS (
    SELECT w.trace_id, w.window_id, min(l.start_ns) AS start_ns, max(l.start_ns + l.duration_ns) AS end_ns
    FROM asked AS w
    JOIN _loaded_events AS l ON l.trace_profile_id = w.trace_profile_id
    WHERE w.annotation = ''
    GROUP BY w.trace_id, w.window_id
),
bounds AS (
    SELECT trace_id, window_id, start_ns, end_ns FROM _annotated_windows
    UNION ALL
    SELECT trace_id, window_id, start_ns, end_ns FROM whole
)
SELECT
    b.trace_id,  -- The trace.
    b.window_id,  -- Name of the window; full is the whole trace.
    w.profile,  -- hta or default.
    w.annotation,  -- Text that the annotation's name contains; empty for the whole trace.
    w.first_instance,  -- First instance of the annotation, from 0.
    w.last_instance,  -- Last instance, inclusive.
    b.start_ns,  -- Start of the window, ns.
    b.end_ns,  -- End of the window, ns.
    -- Number of the window within this computation; private models join on it.
    row_number() OVER (ORDER BY b.trace_id, b.window_id) AS window_no,
    w.trace_profile_id,  -- Number of the trace and profile within this computation.
    w.covers_window  -- The profile's path covers all of the window.
FROM bounds AS b
JOIN asked AS w ON w.trace_id = b.trace_id AND w.window_id = b.window_id
