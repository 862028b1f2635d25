-- One row: an edge between calls that take the CUDA runtime lock, over all threads.
-- How: starts are grouped by the number of ends before them; each runs into the next end, and an end into an end that follows it directly (HTA 2.8.4).
WITH marks AS (
    SELECT trace_id, window_id, profile, event_id, 1 AS change, ts_ns AS at_ns FROM _clip WHERE side = 'cpu' AND is_operator AND is_lock
    UNION ALL
    SELECT trace_id, window_id, profile, event_id, -1, end_ns FROM _clip WHERE side = 'cpu' AND is_operator AND is_lock
),
ordered AS (
    SELECT
        *,
        row_number() OVER by_time AS place,
        lag(change) OVER by_time AS change_before,
        lag(event_id) OVER by_time AS event_before,
        lag(at_ns) OVER by_time AS ns_before,
        sum(CASE WHEN change = -1 THEN 1 ELSE 0 END) OVER (by_time ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)
        - CASE WHEN change = -1 THEN 1 ELSE 0 END AS ends_before
    FROM marks
    WINDOW by_time AS (PARTITION BY trace_id, window_id ORDER BY at_ns, event_id, change DESC)
),
closed AS (
    SELECT
        s.trace_id, s.window_id, s.profile, e.place, s.event_id AS src_event_id, s.at_ns AS src_ns,
        e.event_id AS dst_event_id, e.at_ns AS dst_ns
    FROM ordered AS s
    JOIN ordered AS e
        ON e.trace_id = s.trace_id AND e.window_id = s.window_id AND e.ends_before = s.ends_before
        AND s.change = 1 AND e.change = -1
)
SELECT
    trace_id,  -- The trace.
    window_id,  -- The window.
    place,  -- Place in time order.
    src_event_id,  -- Event of the source node.
    TRUE AS src_is_start,  -- The source is the event's start.
    src_ns,  -- Time of the source, ns.
    dst_event_id,  -- Event of the destination node.
    dst_ns,  -- Time of the destination (an end), ns.
    CASE WHEN src_event_id = dst_event_id THEN 'OPERATOR_KERNEL' ELSE 'DEPENDENCY' END AS edge_type  -- Type of the edge.
FROM closed
UNION ALL
SELECT trace_id, window_id, place, event_before, FALSE, ns_before, event_id, at_ns, 'DEPENDENCY'
FROM ordered
WHERE change = -1 AND change_before = -1
UNION ALL
SELECT c.trace_id, c.window_id, c.place, c.src_event_id, TRUE, c.src_ns, c.src_event_id, e.at_ns, 'OPERATOR_KERNEL'
FROM closed AS c
JOIN _profiles AS p ON p.trace_id = c.trace_id AND p.profile = c.profile AND p.keep_overlapped_call_time
JOIN ordered AS e ON e.trace_id = c.trace_id AND e.window_id = c.window_id AND e.event_id = c.src_event_id AND e.change = -1
WHERE c.src_event_id <> c.dst_event_id
