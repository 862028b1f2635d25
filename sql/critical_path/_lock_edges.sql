-- One row: an edge between calls that take the CUDA runtime lock, over all threads.
-- part of: _edge_parts
-- How: starts are grouped by the number of ends before them; each has an edge to the next end, and an end has one to an
-- end that directly follows it (HTA 2.8.4).
WITH locks AS (
    SELECT c.window_no, c.event_id, c.ts_ns, c.dur_ns, p.keep_overlapped_call_time
    FROM _clip AS c
    JOIN critical_path_windows AS w ON w.window_no = c.window_no
    JOIN _profiles AS p ON p.trace_profile_id = w.trace_profile_id
    WHERE c.is_operator AND c.is_lock AND NOT p.covers_window
),
marks AS (
    SELECT window_no, event_id, 1 AS change, ts_ns AS at_ns FROM locks
    UNION ALL
    SELECT window_no, event_id, -1, ts_ns + dur_ns FROM locks
),
ordered AS (
    SELECT
        *,
        row_number() OVER by_time AS ordinal,
        lag(change) OVER by_time AS change_before,
        lag(event_id) OVER by_time AS event_before,
        sum(CASE WHEN change = -1 THEN 1 ELSE 0 END) OVER (by_time ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)
        - CASE WHEN change = -1 THEN 1 ELSE 0 END AS ends_before
    FROM marks
    WINDOW by_time AS (PARTITION BY window_no ORDER BY at_ns, event_id, change DESC)
),
closed AS (
    SELECT s.window_no, s.ordinal, s.event_id AS src_event_id, e.event_id AS dst_event_id, e.at_ns - s.at_ns AS dts_ns
    FROM ordered AS s
    JOIN ordered AS e ON e.window_no = s.window_no AND e.ends_before = s.ends_before
    WHERE s.change = 1 AND e.change = -1
)
SELECT
    c.window_no,  -- The window.
    1 AS kind,  -- See _edges.
    c.ordinal * 4 AS ordinal,  -- Place in time order, four numbers apart.
    c.src_event_id * 2 AS src_node_id,  -- Source node.
    c.dst_event_id * 2 + 1 AS dst_node_id,  -- Destination node: always an end.
    -- Type of the edge, in edge_types.
    CASE WHEN c.src_event_id = c.dst_event_id THEN t.operator_kernel ELSE t.dependency END AS edge_code,
    -- From source to destination, ns; 0 for dependencies.
    CASE WHEN c.src_event_id = c.dst_event_id THEN c.dts_ns ELSE 0 END AS weight_ns,
    FALSE AS ends_blocking_call,  -- It leads to the end of a blocking call, whose time does not count.
    -- Event whose time it is.
    CASE WHEN c.src_event_id = c.dst_event_id THEN c.dst_event_id END AS attributed_event_id,
    FALSE AS is_earlier,  -- A wait for GPU work from outside the window.
    FALSE AS is_inferred  -- A wait that no cuda_sync row shows.
FROM closed AS c
CROSS JOIN _edge_codes AS t
UNION ALL
SELECT
    o.window_no, 1, o.ordinal * 4 + 1, o.event_before * 2 + 1, o.event_id * 2 + 1, t.dependency, 0, FALSE, NULL, FALSE,
    FALSE
FROM ordered AS o
CROSS JOIN _edge_codes AS t
WHERE o.change = -1 AND o.change_before = -1
UNION ALL
SELECT
    c.window_no, 1, c.ordinal * 4 + 2, c.src_event_id * 2, c.src_event_id * 2 + 1, t.operator_kernel, l.dur_ns, FALSE,
    c.src_event_id, FALSE, FALSE
FROM closed AS c
CROSS JOIN _edge_codes AS t
JOIN locks AS l ON l.window_no = c.window_no AND l.event_id = c.src_event_id
WHERE c.src_event_id <> c.dst_event_id AND l.keep_overlapped_call_time
