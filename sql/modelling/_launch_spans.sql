-- One row: a launch of GPU work, a span that owns the work, and the phase in which it does.
-- How: the spans around the launch up to the first backward operator, the modules of that operator's forward, and the
-- windows of steps and annotations.
-- check: unique(trace_id, launch_event_id, span_id, phase)
WITH around AS (
    SELECT
        a.trace_id, a.event_id AS launch_event_id, s.event_id AS span_id, a.height,
        CASE
            WHEN c.event_id IS NULL THEN 'fwd'
            WHEN a.height < c.height AND c.recomputed_module IS NOT NULL THEN 'recompute'
            ELSE 'bwd_direct'
        END AS phase
    FROM launches AS l
    JOIN _host_ancestors AS a ON a.trace_id = l.trace_id AND a.event_id = l.event_id
    JOIN _span_events AS s ON s.trace_id = a.trace_id AND s.event_id = a.ancestor_id
    LEFT JOIN _work_contexts AS c ON c.trace_id = a.trace_id AND c.event_id = a.event_id
    -- A module around a backward operator does not belong to its forward: the backward pass was called inside it.
    WHERE c.event_id IS NULL OR a.height < c.height OR s.kind <> 'module'
),
forward AS (
    SELECT
        c.trace_id, c.event_id AS launch_event_id, m.module_event_id AS span_id, c.height + m.height AS height,
        CASE WHEN c.recomputed_module IS NULL THEN 'bwd' ELSE 'recompute' END AS phase,
        max(CASE WHEN m.name = c.recomputed_module THEN c.height + m.height END) OVER (
            PARTITION BY c.trace_id, c.event_id
        ) AS recomputed_height
    FROM launches AS l
    JOIN _work_contexts AS c ON c.trace_id = l.trace_id AND c.event_id = l.event_id
    JOIN _forward_modules AS m ON m.trace_id = c.trace_id AND m.forward_event_id = c.forward_event_id
),
owned AS (
    SELECT trace_id, launch_event_id, span_id, phase, height FROM around
    UNION ALL
    SELECT trace_id, launch_event_id, span_id, phase, height
    FROM forward
    WHERE recomputed_height IS NULL OR height > recomputed_height
),
innermost AS (
    SELECT
        trace_id, launch_event_id, span_id, phase,
        row_number() OVER (PARTITION BY trace_id, launch_event_id, phase ORDER BY height) = 1 AS is_innermost
    FROM owned
)
SELECT
    trace_id,  -- The trace.
    launch_event_id,  -- The launch.
    span_id,  -- The span.
    phase,  -- fwd, bwd, recompute, bwd_direct or window.
    is_innermost  -- No other span inside of this one owns the work in this phase; NULL for window.
FROM innermost
UNION ALL
SELECT trace_id, launch_event_id, span_id, 'window', NULL
FROM _launch_windows
