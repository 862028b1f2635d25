-- model: _several_devices
-- One row: a window with GPU work of several devices, whose streams may have the same numbers.
SELECT window_no  -- The window.
FROM _kernel_nodes
GROUP BY window_no
HAVING count(DISTINCT device) > 1;

-- model: critical_path
-- One row: an edge of the longest path of a window, in path order.
-- How: the edges of _path_bounds with the names of their events.
-- check: unique(trace_id, window_id, seq)
WITH owners AS (
    SELECT o.window_no, o.event_id, e.name, e.cat
    FROM _gap_owners AS o
    JOIN critical_path_windows AS w ON w.window_no = o.window_no
    JOIN events AS e ON e.trace_id = w.trace_id AND e.event_id = o.owner_event_id
)
SELECT
    w.trace_id,  -- The trace.
    w.window_id,  -- The window.
    b.seq,  -- Position on the path, from 1.
    b.edge_id,  -- The edge in critical_path_edges.
    b.src_node_id // 2 AS src_event_id,  -- Event of the source node.
    b.src_node_id % 2 = 0 AS src_is_start,  -- The source is the event's start.
    b.dst_node_id // 2 AS dst_event_id,  -- Event of the destination node.
    b.dst_node_id % 2 = 0 AS dst_is_start,  -- The destination is the event's start.
    t.edge_type,  -- Type of the edge.
    b.weight_ns,  -- Weight as measured, ns.
    b.path_weight_ns,  -- Weight as used on the path, ns.
    b.duration_ns,  -- The edge's time in the summary, ns: measured in HTA, used in default.
    b.attributed_event_id,  -- Event that the edge's time belongs to; NULL for edges without time and for launch delays.
    coalesce(b.attributed_event_id, b.dst_node_id // 2) AS event_id,  -- The event to show for this edge.
    -- Name of the attributed event. For a launch delay (names_work in edge_types), or if earlier work delayed a kernel,
    -- the name of the kernel. NULL for edges without time.
    CASE
        WHEN b.attributed_event_id IS NOT NULL OR t.names_work OR b.waits_for_earlier_work
            THEN e.name
    END AS name,
    -- Category of the named event.
    CASE
        WHEN b.attributed_event_id IS NOT NULL OR t.names_work OR b.waits_for_earlier_work
            THEN e.cat
    END AS cat,
    e.pid,  -- Process of event_id.
    e.tid,  -- Thread of event_id.
    e.stream,  -- Stream of event_id; NULL on the CPU.
    -- Displayed owner of its time: the operator, call or GPU work. In a host gap the enclosing annotation, else the
    -- module's or user's own Python function, else the thread. A delay, gap or wait of a stream has itself as owner,
    -- with the device if the window has work of several.
    CASE
        WHEN b.waits_for_earlier_work AND w.annotation = '' THEN 'earlier work, not in the trace'
        WHEN b.waits_for_earlier_work THEN 'earlier work, not in the window'
        WHEN o.event_id IS NOT NULL THEN o.name
        WHEN t.edge_type = 'HOST_GAP' AND b.attributed_event_id IS NULL
            THEN 'outside operators, thread ' || coalesce(h.label, e.tid)
        WHEN b.attributed_event_id IS NOT NULL THEN e.name
        ELSE
            coalesce(rtrim(t.track_label, ': '), 'wait')
            || CASE
                WHEN e.stream IS NOT NULL AND d.window_no IS NOT NULL
                    THEN ', device ' || CAST(coalesce(e.device, TRY_CAST(e.pid AS BIGINT), 0) AS VARCHAR)
                ELSE ''
            END
            || coalesce(', stream ' || CAST(e.stream AS VARCHAR), ', thread ' || coalesce(h.label, e.tid), '')
    END AS owner,
    -- The owner's category; NULL if the owner is not an event.
    CASE
        WHEN b.waits_for_earlier_work THEN NULL
        WHEN o.event_id IS NOT NULL THEN o.cat
        WHEN b.attributed_event_id IS NOT NULL THEN e.cat
    END AS owner_cat,
    b.bound_by,  -- cpu_bound, gpu_compute_bound, … by bound_by and edge_types.
    b.is_inferred  -- A wait that no cuda_sync row records, inferred from calls and timing.
FROM _path_bounds AS b
JOIN critical_path_windows AS w ON w.window_no = b.window_no
JOIN edge_types AS t ON t.edge_code = b.edge_code
LEFT JOIN events AS e ON e.trace_id = w.trace_id AND e.event_id = coalesce(b.attributed_event_id, b.dst_node_id // 2)
LEFT JOIN threads AS h ON h.trace_id = e.trace_id AND h.pid = e.pid AND h.tid = e.tid
LEFT JOIN owners AS o ON o.window_no = b.window_no AND o.event_id = b.attributed_event_id
LEFT JOIN _several_devices AS d ON d.window_no = b.window_no;
