-- One row: a process of a trace without GPU work, with its events that no model reads. These are events without a
-- category, and events of unknown categories if the process has no event of a known CPU category.
-- How: in a process with known CPU categories, events of an unknown category count as ranges of the process's threads.
WITH timed AS (
    SELECT e.trace_id, e.pid, e.cat, s.side, s.cat IS NOT NULL AS is_known
    FROM events AS e
    LEFT JOIN category_sides AS s ON s.cat = e.cat
    WHERE e.duration_ns IS NOT NULL AND e.start_ns IS NOT NULL
),
processes AS (
    SELECT trace_id, pid, coalesce(bool_or(is_known AND side = 'cpu'), FALSE) AS is_known
    FROM timed
    GROUP BY trace_id, pid
),
named AS (
    SELECT trace_id, pid, max(args ->> '$.name') AS process_name
    FROM events
    WHERE ph = 'M' AND name = 'process_name'
    GROUP BY trace_id, pid
)
SELECT
    t.trace_id,  -- The trace.
    t.pid,  -- The process.
    max(n.process_name) AS process_name,  -- Its name; NULL if the trace has none.
    max(t.cat) AS cat,  -- One of the categories of these events; NULL if they have none.
    count(*) AS n,  -- Number of these events.
    count(*) FILTER (WHERE t.cat IS NULL) AS n_without  -- Number of these events without a category.
FROM timed AS t
JOIN processes AS p ON p.trace_id = t.trace_id AND p.pid IS NOT DISTINCT FROM t.pid
LEFT JOIN named AS n ON n.trace_id = t.trace_id AND n.pid = t.pid
WHERE
    (t.cat IS NULL OR NOT t.is_known AND NOT p.is_known)
    AND t.trace_id NOT IN (SELECT g.trace_id FROM timed AS g WHERE g.side = 'gpu')
GROUP BY t.trace_id, t.pid
ORDER BY count(*) DESC, t.pid
