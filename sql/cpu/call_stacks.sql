-- One row: a CPU event with a duration, and the event on its thread that encloses it.
-- How: depth is a running sum of +1 at starts and -1 at ends. The parent is the event whose start opened the group of
-- siblings.
-- Order at equal times: ends first (shorter, then later in the file), then starts (longer, then earlier in the file),
-- then events of zero duration.
-- If events cross instead of nesting, an end closes the event on top of the stack, as in HTA (2.8.5).
-- check: unique(trace_id, event_id)
WITH cpu AS (
    SELECT e.trace_id, t.thread_id, e.event_id, e.start_ns, greatest(e.duration_ns, 0) AS duration_ns
    FROM events AS e
    JOIN threads AS t ON t.trace_id = e.trace_id AND t.pid = e.pid AND t.tid = e.tid
    LEFT JOIN category_sides AS s ON s.cat = e.cat
    WHERE e.duration_ns IS NOT NULL AND e.start_ns IS NOT NULL AND coalesce(s.side, 'cpu') = 'cpu'
),
marks AS (
    SELECT
        trace_id, thread_id, event_id, 1 AS change, start_ns AS at_ns,
        CASE WHEN duration_ns = 0 THEN 2 ELSE 1 END AS turn, -duration_ns AS by_length, event_id AS by_place
    FROM cpu
    UNION ALL
    SELECT
        trace_id, thread_id, event_id, -1, start_ns + duration_ns,
        CASE WHEN duration_ns = 0 THEN 2 ELSE 0 END, duration_ns,
        CASE WHEN duration_ns = 0 THEN event_id ELSE -event_id END
    FROM cpu
),
ordered AS (
    SELECT
        trace_id, thread_id, event_id, change,
        row_number() OVER thread AS ordinal,
        sum(change) OVER (thread ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS open_after,
        lag(change) OVER thread AS change_before,
        lag(event_id) OVER thread AS event_before
    FROM marks
    WINDOW thread AS (PARTITION BY trace_id, thread_id ORDER BY at_ns, turn, by_length, by_place, change DESC)
),
-- The position of the first sibling. last_value with IGNORE NULLS would step back over all siblings for each sibling.
starts AS (
    SELECT
        trace_id, thread_id, event_id, open_after AS depth,
        max(CASE WHEN change_before = 1 THEN ordinal END) OVER (
            PARTITION BY trace_id, thread_id, open_after ORDER BY ordinal
            ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        ) AS first_ordinal
    FROM ordered
    WHERE change = 1
)
SELECT
    s.trace_id,  -- The trace.
    s.event_id,  -- The event.
    o.event_before AS parent_event_id,  -- The enclosing event; NULL at the top of the thread.
    CAST(s.depth AS BIGINT) AS depth,  -- Depth on the stack, 1 at the top.
    s.thread_id  -- Its thread in threads.
FROM starts AS s
LEFT JOIN ordered AS o
    ON o.trace_id = s.trace_id AND o.thread_id = s.thread_id AND o.ordinal = s.first_ordinal
