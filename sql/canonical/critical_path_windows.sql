-- One row: a stretch of a trace whose critical path is asked for.
-- How: no annotation is the whole trace; else the rows whose name is (default) or holds the annotation, counted from 0, first to last instance (HTA 2.8.1).
-- check: unique(trace_id, window_id)
WITH asked AS (
    SELECT w.*, p.view_no, p.instances_on_cpu
    FROM window_requests AS w
    JOIN _profiles AS p ON p.trace_id = w.trace_id AND p.profile = w.profile
),
-- An annotation that is some event's whole name means that name: ProfilerStep#5 is not ProfilerStep#50.
named AS (
    SELECT w.trace_id, w.window_id, e.event_id
    FROM asked AS w
    JOIN events AS e ON e.trace_id = w.trace_id AND e.name = w.annotation
    WHERE w.annotation <> '' AND w.instances_on_cpu AND e.cat <> 'python_function'
),
named_windows AS (
    SELECT DISTINCT trace_id, window_id FROM named
),
loosely AS (
    SELECT w.*
    FROM asked AS w
    LEFT JOIN named_windows AS n ON n.trace_id = w.trace_id AND n.window_id = w.window_id
    WHERE w.annotation <> '' AND n.window_id IS NULL
),
candidates AS (
    SELECT trace_id, window_id, event_id FROM named
    UNION ALL
    SELECT w.trace_id, w.window_id, e.event_id
    FROM loosely AS w
    JOIN events AS e ON e.trace_id = w.trace_id AND contains(e.name, w.annotation)
    WHERE NOT w.instances_on_cpu OR e.cat <> 'python_function'
),
matching AS (
    SELECT
        w.trace_id, w.window_id, l.ts_ns, l.ts_ns + l.dur_ns AS end_ns,
        row_number() OVER (
            PARTITION BY w.trace_id, w.window_id
            ORDER BY CASE WHEN w.instances_on_cpu THEN l.ts_ns WHEN l.sorts_first THEN 0 ELSE 1 END, l.event_id
        ) - 1 AS instance
    FROM candidates AS c
    JOIN asked AS w ON w.trace_id = c.trace_id AND w.window_id = c.window_id
    JOIN _loaded_events AS l ON l.view_no = w.view_no AND l.event_id = c.event_id
    WHERE NOT w.instances_on_cpu OR l.side = 'cpu'
),
chosen AS (
    SELECT m.trace_id, m.window_id, min(m.ts_ns) AS start_ns, max(m.end_ns) AS end_ns
    FROM matching AS m
    JOIN asked AS w ON w.trace_id = m.trace_id AND w.window_id = m.window_id
    WHERE m.instance BETWEEN w.first_instance AND w.last_instance
    GROUP BY m.trace_id, m.window_id
),
whole AS (
    SELECT w.trace_id, w.window_id, min(l.ts_ns) AS start_ns, max(l.ts_ns + l.dur_ns) AS end_ns
    FROM asked AS w
    JOIN _loaded_events AS l ON l.view_no = w.view_no
    WHERE w.annotation = ''
    GROUP BY w.trace_id, w.window_id
),
bounds AS (
    SELECT trace_id, window_id, start_ns, end_ns FROM chosen
    UNION ALL
    SELECT trace_id, window_id, start_ns, end_ns FROM whole
)
SELECT
    b.trace_id,  -- The trace.
    b.window_id,  -- Name of the window; full is the whole trace.
    w.profile,  -- hta or default.
    w.annotation,  -- Text the annotation's name holds; empty for the whole trace.
    w.first_instance,  -- First instance of the annotation, from 0.
    w.last_instance,  -- Last instance, inclusive.
    b.start_ns,  -- Start of the window, ns.
    b.end_ns,  -- End of the window, ns.
    row_number() OVER (ORDER BY b.trace_id, b.window_id) AS window_no,  -- Number of the window within this computation; private models join on it.
    w.view_no  -- Number of the trace and profile within this computation.
FROM bounds AS b
JOIN asked AS w ON w.trace_id = b.trace_id AND w.window_id = b.window_id
