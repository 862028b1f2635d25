-- One row: an event of a window with a covering path, in the numeric form that the analysis of causes needs.
-- How: the events of _clip with the number of their name, and the displayed owner of a frame.
SELECT
    c.window_no,  -- The window.
    c.event_id,  -- The event.
    c.start_ns - w.path_start_ns AS at_ns,  -- Start, relative to the start of the path, ns.
    c.duration_ns,  -- Duration, ns.
    c.thread_id,  -- Thread; NULL on the GPU.
    c.side = 'gpu' AS is_work,  -- GPU work.
    n.name_no,  -- Number of its name in _event_names.
    c.launch_event_id,  -- The call that launched GPU work; NULL on the host.
    -- The annotation or function displayed as owner of its host time; NULL if that is the event itself or it owns none.
    o.owner_event_id,
    n.first_start_ns = c.start_ns AS is_first,  -- The first of its name in the trace.
    e.stream,  -- Stream; NULL on the host.
    c.device  -- Device; NULL on the host.
FROM _clip AS c
JOIN critical_path_windows AS w ON w.window_no = c.window_no
JOIN _asked_windows AS a ON a.window_no = c.window_no
JOIN events AS e ON e.trace_id = w.trace_id AND e.event_id = c.event_id
JOIN _event_names AS n ON n.trace_id = e.trace_id AND n.cat = e.cat AND n.name = coalesce(e.name, '')
LEFT JOIN _gap_owners AS o ON o.window_no = c.window_no AND o.event_id = c.event_id
WHERE a.covers_window AND c.side <> 'sync'
