-- One row: a begin event that has its end event.
-- How: track the depth of open begin events on each thread; the next begin or end at the same depth closes a begin if
-- it is an end.
WITH marks AS (
    SELECT trace_id, event_id, pid, tid, ph, start_ns, CASE WHEN ph = 'B' THEN 1 ELSE -1 END AS change
    FROM events
    WHERE ph IN ('B', 'E') AND start_ns IS NOT NULL
),
stacked AS (
    SELECT
        *,
        sum(change)
            OVER (
                PARTITION BY trace_id, pid, tid
                ORDER BY start_ns, event_id ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
            )
        + CASE WHEN ph = 'E' THEN 1 ELSE 0 END AS depth
    FROM marks
),
paired AS (
    SELECT trace_id, event_id, ph, lead(ph) OVER level AS next_ph, lead(start_ns) OVER level - start_ns AS duration_ns
    FROM stacked
    WINDOW level AS (PARTITION BY trace_id, pid, tid, depth ORDER BY start_ns, event_id)
)
SELECT
    trace_id,  -- The trace.
    event_id,  -- The begin event.
    duration_ns  -- Time from the begin to its end event, ns.
FROM paired
WHERE ph = 'B' AND next_ph = 'E'
