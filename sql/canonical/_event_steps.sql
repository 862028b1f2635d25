-- One row: a host event and the profiler step in which it begins.
-- check: unique(trace_id, event_id, step)
WITH lengths AS (
    SELECT DISTINCT trace_id, part_ns FROM _steps_in_parts
),
-- The part is a separate column for the same reason as in _clip.
host AS (
    SELECT e.trace_id, e.event_id, e.start_ns, l.part_ns, e.start_ns // l.part_ns AS part
    FROM events AS e
    JOIN lengths AS l ON l.trace_id = e.trace_id
    LEFT JOIN category_sides AS s ON s.cat = e.cat
    WHERE e.start_ns IS NOT NULL AND coalesce(s.side, 'cpu') = 'cpu'
)
SELECT
    h.trace_id,  -- The trace.
    h.event_id,  -- The event.
    s.step  -- Number of the step.
FROM host AS h
JOIN _steps_in_parts AS s ON s.trace_id = h.trace_id AND s.part_ns = h.part_ns AND s.part = h.part
WHERE h.start_ns >= s.start_ns AND h.start_ns < s.end_ns
