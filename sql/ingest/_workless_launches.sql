-- One row: a launch of a kernel or graph whose GPU work is not in the trace.
-- How: calls by name (rules/capture_calls.csv) without GPU work of their correlation id. In all traces that were
-- looked at (V100 to B200, MI250, MI300) kernels and graphs have work, while copies and memsets of 0 bytes have none.
WITH launches AS (
    SELECT
        e.trace_id, e.event_id, e.pid, e.tid, e.start_ns, e.end_ns, e.correlation,
        regexp_replace(e.name, '_(ptsz|v[0-9]+)$', '') AS name
    FROM events AS e
    WHERE
        contains(e.name, 'Launch') AND e.correlation > 0 AND e.start_ns IS NOT NULL AND e.duration_ns IS NOT NULL
        AND regexp_matches(e.cat, '_(runtime|driver)$')
),
work AS (
    SELECT e.trace_id, e.correlation
    FROM events AS e
    JOIN category_sides AS s ON s.cat = e.cat AND s.side = 'gpu'
    WHERE e.correlation > 0
)
SELECT
    l.trace_id,  -- The trace.
    l.event_id,  -- The call.
    l.pid,  -- Its process.
    l.tid,  -- Its thread.
    l.start_ns,  -- Its start, ns.
    l.end_ns  -- Its end, ns.
FROM launches AS l
LEFT JOIN capture_calls AS r ON r.name = l.name AND r.role = 'kernel'
WHERE
    (r.name IS NOT NULL OR contains(l.name, 'GraphLaunch'))
    AND NOT EXISTS (SELECT 1 FROM work AS w WHERE w.trace_id = l.trace_id AND w.correlation = l.correlation)
