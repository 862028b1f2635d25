-- One row: a call of a window that the path covers which waited for GPU work, and what of its time that explains.
-- How: it waited for whatever ended last. Without any wait it would have taken as long as the shortest call of its name
-- that waited for nothing; where all of its name waited, as the shortest call of any name that did not, and where all
-- did, 3 us.
WITH ranked AS (
    SELECT
        *,
        row_number() OVER (
            PARTITION BY window_no, event_id ORDER BY source_end_ns DESC, source_in_window DESC, source_event_id
        ) AS choice
    FROM _call_waits
    WHERE has_waited
),
calls AS (
    SELECT c.window_no, c.event_id, c.dur_ns, e.name, r.event_id IS NOT NULL AS has_waited
    FROM _clip AS c
    JOIN critical_path_windows AS w ON w.window_no = c.window_no AND w.covers_window
    JOIN events AS e ON e.trace_id = w.trace_id AND e.event_id = c.event_id
    LEFT JOIN ranked AS r ON r.window_no = c.window_no AND r.event_id = c.event_id AND r.choice = 1
    WHERE c.is_blocking
),
needs AS (
    SELECT window_no, name, min(CASE WHEN NOT has_waited THEN dur_ns END) AS need_ns
    FROM calls
    GROUP BY window_no, name
),
least_needs AS (
    SELECT window_no, min(need_ns) AS need_ns FROM needs GROUP BY window_no
)
SELECT
    r.window_no,  -- The window.
    r.event_id,  -- The call.
    r.event_id * 2 + 1 AS node_id,  -- Its end.
    r.source_event_id,  -- GPU work that it waited for.
    r.source_in_window,  -- That belongs to the window.
    greatest(r.end_ns - r.source_end_ns, 0) AS remaining_ns,  -- From the end of that work to the call's, ns.
    coalesce(n.need_ns, l.need_ns, 3000) AS need_ns  -- What the call takes when it waits for nothing, ns.
FROM ranked AS r
LEFT JOIN calls AS c ON c.window_no = r.window_no AND c.event_id = r.event_id
LEFT JOIN needs AS n ON n.window_no = c.window_no AND n.name = c.name
LEFT JOIN least_needs AS l ON l.window_no = r.window_no
WHERE r.choice = 1
