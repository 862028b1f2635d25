-- One row: an interval between two GPU activities in which a device ran nothing, with the owner of most of it and the
-- activity that ended it. The gaps of a device add up to idle_ns of temporal_breakdown.
-- How: the owner is the owner in idle_causes with the largest part of the gap. The activity that ended the gap starts
-- at its end; among several, it is the activity launched first.
-- check: unique(trace_id, device, start_ns)
WITH sums AS (
    SELECT
        trace_id, device, gap_no, cause, name, sum(duration_ns) AS owned_ns, bool_or(inferred) AS inferred
    FROM idle_causes
    WHERE is_inner
    GROUP BY trace_id, device, gap_no, cause, name
),
owners AS (
    SELECT
        *,
        row_number() OVER (PARTITION BY trace_id, device, gap_no ORDER BY owned_ns DESC, cause, name) AS place,
        count(*) OVER (PARTITION BY trace_id, device, gap_no) AS n_owners
    FROM sums
),
longest AS (
    SELECT
        trace_id, device, gap_no, cause, name, event_id,
        row_number() OVER (
            PARTITION BY trace_id, device, gap_no, cause, name ORDER BY duration_ns DESC, start_ns
        ) AS place
    FROM idle_causes
    WHERE is_inner
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
    g.start_ns,  -- Start, ns: the end of the work before the gap.
    g.end_ns,  -- End, ns: the start of the work after the gap.
    g.end_ns - g.start_ns AS duration_ns,  -- Duration, ns.
    o.cause,  -- What the GPU waits for during most of the gap, in cause_kinds.
    o.name,  -- Name of the owner of that time, as in causes.
    TRY_CAST(o.owned_ns AS BIGINT) AS owned_ns,  -- Duration of that time, ns; idle_causes has all owners.
    o.n_owners,  -- Owners of the gap.
    coalesce(o.inferred, FALSE) AS inferred,  -- True if the owner follows from a wait that no event records.
    i.event_id AS owner_event_id,  -- Event that shows the owner's longest interval.
    e.name AS event_name,  -- Name of the owner event.
    g.ended_by_event_id,  -- GPU activity that ended the gap.
    k.name AS ended_by,  -- Name of the activity that ended the gap.
    g.launch_event_id,  -- Launch call of that activity; NULL if it is not in the trace.
    l.name AS launch_name,  -- Name of the launch call.
    g.launch_ts_ns,  -- Start of the launch call, ns; before the gap if the work was already queued.
    g.thread_id,  -- Thread of the launch call, in threads.
    s.module,  -- Innermost module around the launch; NULL outside of modules, and where the trace records none.
    s.annotation  -- Innermost annotation around the launch, except profiler steps; NULL outside of any.
FROM _idle_gaps AS g
JOIN owners AS o ON o.trace_id = g.trace_id AND o.device = g.device AND o.gap_no = g.gap_no AND o.place = 1
JOIN longest AS i
    ON i.trace_id = o.trace_id AND i.device = o.device AND i.gap_no = o.gap_no AND i.cause = o.cause
        AND i.name = o.name AND i.place = 1
JOIN events AS k ON k.trace_id = g.trace_id AND k.event_id = g.ended_by_event_id
LEFT JOIN events AS e ON e.trace_id = i.trace_id AND e.event_id = i.event_id
LEFT JOIN events AS l ON l.trace_id = g.trace_id AND l.event_id = g.launch_event_id
LEFT JOIN spans AS s ON s.trace_id = g.trace_id AND s.event_id = g.launch_event_id
WHERE g.is_inner
