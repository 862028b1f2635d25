-- One row: a launch of GPU work and a step, annotation or task during which it started, on any thread of the process.
-- How: on every thread with such spans, the last that started before the launch, and those around it, if they had not
-- ended.
-- A launch is in one step only, preferably one on its own thread, so that no GPU work counts in two steps.
-- check: unique(trace_id, launch_event_id, span_id)
WITH timed AS (
    SELECT trace_id, event_id, kind, pid, tid, start_ns, end_ns FROM _span_events WHERE kind <> 'module'
),
timed_threads AS (
    SELECT DISTINCT trace_id, pid, tid FROM timed
),
marks AS (
    SELECT trace_id, pid, tid, start_ns, 0 AS turn, -end_ns AS by_end, event_id, event_id AS span_id FROM timed
    UNION ALL
    SELECT l.trace_id, l.pid, t.tid, l.start_ns, 1, 0, l.event_id, NULL
    FROM launches AS l
    JOIN timed_threads AS t ON t.trace_id = l.trace_id AND t.pid = l.pid
),
-- The span that started last is the n-th of its thread, where n is how many had started by then.
numbered AS (
    SELECT
        trace_id, pid, tid, event_id, start_ns, span_id,
        count(span_id) OVER (
            PARTITION BY trace_id, pid, tid ORDER BY start_ns, turn, by_end, event_id
            ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        ) AS n_started
    FROM marks
),
last_started AS (
    SELECT l.trace_id, l.event_id AS launch_event_id, l.start_ns, s.span_id
    FROM numbered AS l
    JOIN numbered AS s
        ON s.trace_id = l.trace_id AND s.pid = l.pid AND s.tid IS NOT DISTINCT FROM l.tid AND s.n_started = l.n_started
    WHERE l.span_id IS NULL AND s.span_id IS NOT NULL
),
started AS (
    SELECT trace_id, launch_event_id, start_ns, span_id FROM last_started
    UNION ALL
    SELECT p.trace_id, p.launch_event_id, p.start_ns, a.ancestor_id
    FROM last_started AS p
    JOIN _host_ancestors AS a ON a.trace_id = p.trace_id AND a.event_id = p.span_id
),
held AS (
    SELECT h.trace_id, h.launch_event_id, h.span_id, s.kind, s.tid, s.start_ns
    FROM started AS h
    JOIN timed AS s ON s.trace_id = h.trace_id AND s.event_id = h.span_id
    WHERE h.start_ns < s.end_ns
),
steps AS (
    SELECT h.trace_id, h.launch_event_id, h.span_id
    FROM held AS h
    JOIN launches AS l ON l.trace_id = h.trace_id AND l.event_id = h.launch_event_id
    WHERE h.kind = 'step'
    QUALIFY
        row_number() OVER (
            PARTITION BY h.trace_id, h.launch_event_id
            ORDER BY CASE WHEN h.tid = l.tid THEN 0 ELSE 1 END, h.start_ns DESC, h.span_id
        ) = 1
)
SELECT
    trace_id,  -- The trace.
    launch_event_id,  -- The launch.
    span_id  -- The step, annotation or task.
FROM held
WHERE kind <> 'step'
UNION ALL
SELECT trace_id, launch_event_id, span_id
FROM steps
