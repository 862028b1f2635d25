-- One row: an event of the dependency graph of a window: an operator, call or GPU activity (whose start and end are
-- nodes), or an annotation or Python function that host time outside operators belongs to.
-- How: the events of _clip that the path does not exclude (_left_out), and every event that an edge's time belongs to.
-- Scenarios and saved paths read these rows and the edges.
-- check: unique(trace_id, window_id, event_id)
WITH attributed AS (
    SELECT DISTINCT window_no, attributed_event_id FROM _edges
)
SELECT
    w.trace_id,  -- The trace.
    w.window_id,  -- The window.
    c.event_id,  -- The event.
    -- Class of GPU work in the profile; CPU for operators and calls, HOST for annotations and functions; NULL for an
    -- event that only owns an edge's time (HTA attributes some to annotations).
    CASE
        WHEN c.side = 'gpu' THEN coalesce(k.class, 'OTHER')
        WHEN c.is_operator THEN 'CPU'
        WHEN h.event_id IS NOT NULL THEN 'HOST'
    END AS class,
    c.thread_id,  -- Number of its thread in threads.
    c.device,  -- Device of GPU work.
    c.stream_key,  -- The stream as the profile sees it, which orders GPU work; a stream in streams by default.
    c.is_blocking,  -- A call that waits for the GPU.
    -- The call that launched GPU work; NULL on the host, and in profile hta, whose scenarios identify launches only by
    -- edges.
    CASE WHEN w.profile <> 'hta' THEN c.launch_event_id END AS launch_event_id,
    h.around_event_id,  -- For an owner of host time: the enclosing annotation or function; NULL if there is none.
    -- Displayed owner: the enclosing annotation, else the module's or user's own function, else the event itself.
    h.owner_event_id
FROM _clip AS c
JOIN critical_path_windows AS w ON w.window_no = c.window_no
LEFT JOIN _gpu_classes AS k ON k.window_no = c.window_no AND k.event_id = c.event_id
LEFT JOIN attributed AS o ON o.window_no = c.window_no AND o.attributed_event_id = c.event_id
LEFT JOIN _gap_owners AS h ON h.window_no = c.window_no AND h.event_id = c.event_id
LEFT JOIN _left_out AS l ON l.window_no = c.window_no AND l.event_id = c.event_id
WHERE
    l.event_id IS NULL
    AND (c.is_operator OR c.side = 'gpu' OR o.attributed_event_id IS NOT NULL OR h.event_id IS NOT NULL)
