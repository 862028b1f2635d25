-- One row: a stretch between two pieces of GPU work in which a device ran nothing, with what ended it and what the host
-- did meanwhile. The gaps of a device add up to idle_ns of temporal_breakdown.
-- How: the work that starts at the gap's end, of several the one launched first; the host's time is that of the thread
-- which launched it. The five parts add up to the gap.
-- check: unique(trace_id, device, start_ns)
WITH parts AS (
    SELECT
        trace_id, device, gap_no,
        sum(CASE WHEN reason = 'blocked' THEN end_ns - start_ns ELSE 0 END) AS blocked_ns,
        sum(CASE WHEN reason = 'operator' THEN end_ns - start_ns ELSE 0 END) AS operator_ns,
        sum(CASE WHEN reason = 'host' THEN end_ns - start_ns ELSE 0 END) AS host_ns,
        sum(CASE WHEN reason = 'launch' THEN end_ns - start_ns ELSE 0 END) AS launch_ns,
        sum(CASE WHEN reason = 'unknown' THEN end_ns - start_ns ELSE 0 END) AS unknown_ns
    FROM _idle_stretches
    GROUP BY trace_id, device, gap_no
),
-- Gaps and calls do not overlap one another, so few gaps have more than one call.
called_ns AS (
    SELECT s.trace_id, s.device, s.gap_no, e.name, sum(s.end_ns - s.start_ns) AS ns
    FROM _idle_stretches AS s
    JOIN events AS e ON e.trace_id = s.trace_id AND e.event_id = s.call_event_id
    GROUP BY s.trace_id, s.device, s.gap_no, e.name
),
called_most AS (
    SELECT trace_id, device, gap_no, max(ns) AS ns FROM called_ns GROUP BY trace_id, device, gap_no
),
called AS (
    SELECT n.trace_id, n.device, n.gap_no, min(n.name) AS name
    FROM called_ns AS n
    JOIN called_most AS m ON m.trace_id = n.trace_id AND m.device = n.device AND m.gap_no = n.gap_no AND m.ns = n.ns
    GROUP BY n.trace_id, n.device, n.gap_no
),
waited_ns AS (
    SELECT s.trace_id, s.device, s.gap_no, e.name, sum(s.end_ns - s.start_ns) AS ns
    FROM _idle_stretches AS s
    JOIN events AS e ON e.trace_id = s.trace_id AND e.event_id = s.wait_event_id
    GROUP BY s.trace_id, s.device, s.gap_no, e.name
),
waited_most AS (
    SELECT trace_id, device, gap_no, max(ns) AS ns FROM waited_ns GROUP BY trace_id, device, gap_no
),
waited AS (
    SELECT n.trace_id, n.device, n.gap_no, min(n.name) AS name
    FROM waited_ns AS n
    JOIN waited_most AS m ON m.trace_id = n.trace_id AND m.device = n.device AND m.gap_no = n.gap_no AND m.ns = n.ns
    GROUP BY n.trace_id, n.device, n.gap_no
),
enders AS (
    SELECT DISTINCT trace_id, launch_event_id FROM _idle_gaps WHERE is_inner AND launch_event_id IS NOT NULL
),
lowest AS (
    SELECT a.trace_id, a.event_id, s.kind, min(a.height) AS height
    FROM enders AS l
    JOIN _host_ancestors AS a ON a.trace_id = l.trace_id AND a.event_id = l.launch_event_id
    JOIN _span_events AS s ON s.trace_id = a.trace_id AND s.event_id = a.ancestor_id
    WHERE s.kind = 'module' OR s.kind = 'annotation'
    GROUP BY a.trace_id, a.event_id, s.kind
),
spans AS (
    SELECT
        l.trace_id, l.event_id,
        max(CASE WHEN s.kind = 'module' THEN s.name END) AS module,
        max(CASE WHEN s.kind = 'annotation' THEN s.name END) AS annotation
    FROM lowest AS l
    JOIN _host_ancestors AS a ON a.trace_id = l.trace_id AND a.event_id = l.event_id AND a.height = l.height
    JOIN _span_events AS s ON s.trace_id = a.trace_id AND s.event_id = a.ancestor_id AND s.kind = l.kind
    GROUP BY l.trace_id, l.event_id
)
SELECT
    g.trace_id,  -- The trace.
    g.device,  -- The device.
    g.start_ns,  -- Start: the end of the work before, ns.
    g.end_ns,  -- End: the start of the work after, ns.
    g.end_ns - g.start_ns AS duration_ns,  -- Duration, ns.
    -- The longest of the five parts, the first of equal ones: blocked, operator, host, launch or unknown.
    CASE greatest(p.blocked_ns, p.operator_ns, p.host_ns, p.launch_ns, p.unknown_ns)
        WHEN p.blocked_ns THEN 'blocked'
        WHEN p.operator_ns THEN 'operator'
        WHEN p.host_ns THEN 'host'
        WHEN p.launch_ns THEN 'launch'
        ELSE 'unknown'
    END AS reason,
    TRY_CAST(p.blocked_ns AS BIGINT) AS blocked_ns,  -- The launching thread waited for the GPU in a call, ns.
    TRY_CAST(p.operator_ns AS BIGINT) AS operator_ns,  -- It was in another operator or call, ns.
    -- It was in neither: Python, loading data, another thread's turn, ns.
    TRY_CAST(p.host_ns AS BIGINT) AS host_ns,
    -- From the launch to the gap's end, ns: the launch itself, and work that waited for another stream.
    TRY_CAST(p.launch_ns AS BIGINT) AS launch_ns,
    TRY_CAST(p.unknown_ns AS BIGINT) AS unknown_ns,  -- All of it, where the launch is not in the trace, ns; else 0.
    -- Outermost operator or call that the launching thread spent most of the gap in; NULL where it was in none.
    c.name AS host_call,
    w.name AS blocking_call,  -- Call that it waited for the GPU in, the longest; NULL where it was in none.
    g.ended_by_event_id,  -- The work that ended the gap.
    k.name AS ended_by,  -- Its name.
    g.launch_event_id,  -- The call that launched it; NULL where that is not in the trace.
    l.name AS launch_name,  -- Name of that call.
    g.launch_ts_ns,  -- When it began, ns; before the gap where the work had been waiting.
    g.thread_id,  -- Its thread in threads.
    s.module,  -- Innermost module around the launch; NULL outside of modules, and where the trace records none.
    s.annotation  -- Innermost annotation around the launch, profiler steps aside; NULL outside of any.
FROM _idle_gaps AS g
JOIN parts AS p ON p.trace_id = g.trace_id AND p.device = g.device AND p.gap_no = g.gap_no
JOIN events AS k ON k.trace_id = g.trace_id AND k.event_id = g.ended_by_event_id
LEFT JOIN events AS l ON l.trace_id = g.trace_id AND l.event_id = g.launch_event_id
LEFT JOIN called AS c ON c.trace_id = g.trace_id AND c.device = g.device AND c.gap_no = g.gap_no
LEFT JOIN waited AS w ON w.trace_id = g.trace_id AND w.device = g.device AND w.gap_no = g.gap_no
LEFT JOIN spans AS s ON s.trace_id = g.trace_id AND s.event_id = g.launch_event_id
WHERE g.is_inner
