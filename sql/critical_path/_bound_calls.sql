-- One row: a call of a window that the path covers which waited for GPU work, and what of its time that explains.
-- How: it waited for whatever ended last. Without any wait it would have taken as long as the shortest call of its name
-- that waited for nothing; where all of its name waited, as the shortest call of any name that did not, and where all
-- did, 3 us; and no less than what it took after the work had ended, where that is its own time (over 50 us: cudaFree
-- waits and then frees). A launch takes as long as those of its name do on average that found room in the queue (20 us
-- at most).
-- A call that is neither blocking nor a launch waits for nothing, whatever row names it; and one that took no longer
-- than such a call takes when it waits for nothing was not held up by the wait.
WITH ranked AS (
    SELECT
        *,
        row_number() OVER (
            PARTITION BY window_no, event_id ORDER BY source_end_ns DESC, source_in_window DESC, source_event_id
        ) AS choice
    FROM _call_waits
    WHERE has_waited
),
asked AS (
    SELECT window_no, event_id, duration_ns, FALSE AS is_launch FROM _clip WHERE is_blocking
    UNION ALL
    SELECT DISTINCT window_no, event_id, end_ns - start_ns, TRUE FROM _call_waits WHERE is_launch
),
calls AS (
    SELECT a.window_no, a.event_id, a.duration_ns, e.name, r.event_id IS NOT NULL AS has_waited, a.is_launch
    FROM asked AS a
    JOIN critical_path_windows AS w ON w.window_no = a.window_no AND w.covers_window
    JOIN events AS e ON e.trace_id = w.trace_id AND e.event_id = a.event_id
    LEFT JOIN ranked AS r ON r.window_no = a.window_no AND r.event_id = a.event_id AND r.choice = 1
),
needs AS (
    SELECT
        window_no, name,
        coalesce(
            min(CASE WHEN NOT has_waited AND NOT is_launch THEN duration_ns END),
            CAST(avg(CASE WHEN NOT has_waited AND is_launch AND duration_ns <= 20000 THEN duration_ns END) AS BIGINT)
        ) AS need_ns,
        min(CASE WHEN NOT has_waited AND NOT is_launch THEN duration_ns END) AS blocking_ns
    FROM calls
    GROUP BY window_no, name
),
least_needs AS (
    SELECT window_no, min(blocking_ns) AS need_ns FROM needs GROUP BY window_no
)
SELECT
    r.window_no,  -- The window.
    r.event_id,  -- The call.
    r.event_id * 2 + 1 AS node_id,  -- Its end.
    r.source_event_id,  -- GPU work that it waited for.
    r.source_in_window,  -- That belongs to the window.
    greatest(r.end_ns - r.source_end_ns, 0) AS remaining_ns,  -- From the end of that work to the call's, ns.
    -- What the call takes when it waits for nothing, ns.
    greatest(
        coalesce(n.need_ns, l.need_ns, 3000),
        CASE WHEN r.end_ns - r.source_end_ns > 50000 THEN r.end_ns - r.source_end_ns ELSE 0 END
    ) AS need_ns
FROM ranked AS r
JOIN calls AS c ON c.window_no = r.window_no AND c.event_id = r.event_id
LEFT JOIN needs AS n ON n.window_no = c.window_no AND n.name = c.name
LEFT JOIN least_needs AS l ON l.window_no = r.window_no
WHERE r.choice = 1 AND (c.is_launch OR c.duration_ns > coalesce(n.need_ns, l.need_ns, 0))
