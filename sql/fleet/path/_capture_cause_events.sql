-- One row: an event of a rank in the path through all ranks, with names as numbers, as in _cause_events.
-- How: the events in the rank's graph, the events that own its host time outside operators, and the events whose names
-- determine a cause, without functions below frame_ns.
-- check: unique(trace_id, event_id)
WITH of_graph AS (
    SELECT n.trace_id, n.event_id, max(CASE WHEN n.side = 'gpu' THEN 1 ELSE 0 END) AS is_work
    FROM critical_path_nodes AS n
    WHERE n.window_id = 'full'
    GROUP BY n.trace_id, n.event_id
),
-- An owner that begins in one operator and ends in another has no node.
owners AS (
    SELECT e.trace_id, e.attributed_event_id AS event_id
    FROM critical_path_edges AS e
    WHERE e.window_id = 'full' AND e.edge_type = 'HOST_GAP' AND e.attributed_event_id IS NOT NULL
    UNION
    SELECT e.trace_id, e.owner_event_id
    FROM critical_path_edges AS e
    WHERE e.window_id = 'full' AND e.edge_type = 'HOST_GAP' AND e.owner_event_id IS NOT NULL
),
chosen AS (
    SELECT trace_id, event_id, is_work FROM of_graph
    UNION
    SELECT o.trace_id, o.event_id, 0
    FROM owners AS o
    LEFT JOIN of_graph AS g ON g.trace_id = o.trace_id AND g.event_id = o.event_id
    WHERE g.event_id IS NULL
    UNION
    SELECT e.trace_id, e.event_id, 0
    FROM events AS e
    JOIN _event_names AS n ON n.trace_id = e.trace_id AND n.cat = e.cat AND n.name = coalesce(e.name, '')
    JOIN _cause_names AS c ON c.name_no = n.name_no
    LEFT JOIN of_graph AS g ON g.trace_id = e.trace_id AND g.event_id = e.event_id
    WHERE
        g.event_id IS NULL
        -- As in _clip.
        AND e.duration_ns >= CASE WHEN e.cat = 'python_function' THEN threshold('frame_ns') ELSE 1 END
)
SELECT
    r.capture_id,  -- The capture.
    c.trace_id,  -- The trace.
    c.event_id,  -- The event.
    e.start_ns AS at_ns,  -- Start on the rank's own clock, ns.
    e.duration_ns,  -- Duration, ns.
    CASE WHEN c.is_work = 0 THEN t.thread_id END AS thread_id,  -- Thread; NULL on the GPU.
    c.is_work = 1 AS is_work,  -- True for GPU work.
    n.name_no,  -- Number of the name.
    k.launch_event_id,  -- Launch call of the GPU work; NULL on the host.
    n.first_start_ns = e.start_ns AS is_first,  -- True for the first event of its name in the trace.
    e.stream,  -- Stream; NULL on the host.
    k.device  -- Device; NULL on the host.
FROM capture_ranks AS r
JOIN chosen AS c ON c.trace_id = r.trace_id
JOIN events AS e ON e.trace_id = c.trace_id AND e.event_id = c.event_id
JOIN _event_names AS n ON n.trace_id = e.trace_id AND n.cat = e.cat AND n.name = coalesce(e.name, '')
LEFT JOIN threads AS t ON t.trace_id = e.trace_id AND t.pid = e.pid AND t.tid = e.tid
LEFT JOIN kernels AS k ON k.trace_id = e.trace_id AND k.event_id = e.event_id
WHERE r.left_out_reason IS NULL
