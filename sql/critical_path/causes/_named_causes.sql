-- One row: a cause of a window's length, with its name.
WITH named AS (
    SELECT r.*, w.trace_id, w.window_id, w.annotation, c.cause
    FROM _cause_rows AS r
    JOIN critical_path_windows AS w ON w.window_no = r.window_no
    JOIN cause_kinds AS c ON c.cause_no = r.cause_no
)
SELECT
    r.trace_id,  -- The trace.
    r.window_id,  -- The window.
    r.window_no,  -- Number of the window.
    r.without_profiler,  -- The row describes the window without the profiler's cost.
    r.row_no,  -- Position among the causes of the window, from 0.
    r.cause,  -- The cause, in cause_kinds.
    -- The operator, kernel, call, annotation, Python function, thread or stream.
    CASE
        WHEN r.named_after = 0 THEN coalesce(n.name, '')
        WHEN r.named_after = 1 THEN 'outside operators, thread ' || coalesce(t.label, e.tid)
        WHEN r.named_after = 2 AND r.number = -1 THEN 'no stream'
        WHEN r.named_after = 2 THEN 'stream ' || CAST(r.number AS VARCHAR)
        WHEN r.annotation = '' THEN 'earlier work, not in the trace'
        ELSE 'earlier work, not in the window'
    END AS name,
    r.duration_ns,  -- Time of the cause and name on the path, ns.
    -- Share of the time of all rows of the window, percent.
    100e0 * r.duration_ns / nullif(sum(r.duration_ns) OVER (PARTITION BY r.window_no, r.without_profiler), 0)
        AS share_percent,
    r.idle_ns,  -- Part of duration_ns without GPU work, ns.
    r.exposed_ns,  -- Part of duration_ns not overlapped with a computing kernel, ns.
    r.saves_ns,  -- Time by which removing this row's time shortens the window, ns.
    r.halved_saves_ns,  -- Time by which halving this row's time shortens the window, ns.
    r.cause_saves_ns,  -- Time by which removing all rows of the cause shortens the window, ns.
    r.times,  -- Number of events with time in this row.
    r.event_id,  -- The event with the most time in this row.
    r.inferred_ns  -- Time that follows a wait that no event records, ns.
FROM named AS r
LEFT JOIN _event_names AS n ON n.name_no = CASE WHEN r.named_after = 0 THEN r.number END
LEFT JOIN events AS e ON e.trace_id = r.trace_id AND e.event_id = r.event_id
LEFT JOIN threads AS t ON t.trace_id = e.trace_id AND t.pid = e.pid AND t.tid = e.tid
