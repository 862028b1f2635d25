-- One row: an interval without work on a device: between two busy intervals, before the first or after the last.
-- How: among the activities that start where the interval ends, the activity launched first ended it.
WITH busy AS (
    SELECT
        trace_id, device, start_ns, end_ns,
        lag(end_ns) OVER (PARTITION BY trace_id, device ORDER BY start_ns) AS last_end_ns,
        lead(start_ns) OVER (PARTITION BY trace_id, device ORDER BY start_ns) AS next_start_ns
    FROM merged_intervals
    WHERE scope = 'all'
),
enders AS (
    SELECT
        k.trace_id, k.device, k.start_ns, k.event_id, l.event_id AS launch_event_id, l.start_ns AS launch_ts_ns, l.pid,
        l.tid
    FROM busy AS b
    JOIN kernels AS k ON k.trace_id = b.trace_id AND k.device = b.device AND k.start_ns = b.start_ns
    LEFT JOIN events AS l ON l.trace_id = k.trace_id AND l.event_id = k.launch_event_id
    QUALIFY
        row_number() OVER (
            PARTITION BY k.trace_id, k.device, k.start_ns
            ORDER BY CASE WHEN l.event_id IS NULL THEN 1 ELSE 0 END, l.start_ns, k.event_id
        ) = 1
),
gaps AS (
    SELECT
        b.trace_id, b.device, coalesce(b.last_end_ns, t.trace_start_ns) AS start_ns, b.start_ns AS end_ns,
        b.last_end_ns IS NOT NULL AS is_inner, e.event_id, e.launch_event_id, e.launch_ts_ns, e.pid, e.tid
    FROM busy AS b
    JOIN traces AS t ON t.trace_id = b.trace_id
    JOIN enders AS e ON e.trace_id = b.trace_id AND e.device = b.device AND e.start_ns = b.start_ns
    UNION ALL
    SELECT b.trace_id, b.device, b.end_ns, t.trace_end_ns, FALSE, NULL, NULL, NULL, NULL, NULL
    FROM busy AS b
    JOIN traces AS t ON t.trace_id = b.trace_id
    WHERE b.next_start_ns IS NULL
)
SELECT
    g.trace_id,  -- The trace.
    g.device,  -- The device.
    -- Number of the interval on its device, from 1.
    row_number() OVER (PARTITION BY g.trace_id, g.device ORDER BY g.start_ns) AS gap_no,
    g.start_ns,  -- Start, ns.
    g.end_ns,  -- End, ns.
    g.is_inner,  -- True between two busy intervals.
    g.event_id AS ended_by_event_id,  -- GPU activity that ended the interval; NULL after the last activity.
    g.launch_event_id,  -- Launch call of that activity; NULL if it is not in the trace.
    g.launch_ts_ns,  -- Start of the launch call, ns.
    -- Start of the launch call, clamped to the interval, ns: until then, the host had not launched the work.
    greatest(g.start_ns, least(g.end_ns, g.launch_ts_ns)) AS asked_ns,
    t.thread_id  -- Thread of the launch call.
FROM gaps AS g
LEFT JOIN threads AS t ON t.trace_id = g.trace_id AND t.pid = g.pid AND t.tid = g.tid
WHERE g.end_ns > g.start_ns
