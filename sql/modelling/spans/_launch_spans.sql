-- model: _launch_windows
-- One row: a launch of GPU work and a step, annotation or task during which it started, on any thread of the process.
-- How: on every thread with such spans, the last span that started before the launch, and the spans around that span.
-- Spans that had ended are excluded. A launch is in one step only, preferably a step on its own thread, so that no GPU
-- work counts in two steps.
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
-- The latest span on a thread is the n-th, where n is the number of spans started so far.
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
FROM steps;

-- model: _forward_modules
-- One row: a forward operator with a backward, and a module that it ran in.
-- How: the modules around the operator. If the operator is itself recomputed inside a backward operator, these are the
-- modules inside that backward operator, then the modules of that operator's forward above the outermost of them.
-- check: unique(trace_id, forward_event_id, module_event_id)
WITH forwards AS (
    SELECT DISTINCT trace_id, forward_event_id AS event_id FROM backward_links WHERE forward_event_id IS NOT NULL
),
around AS (
    SELECT a.trace_id, a.event_id, a.height, s.event_id AS module_event_id, s.name
    FROM _host_ancestors AS a
    JOIN _span_events AS s ON s.trace_id = a.trace_id AND s.event_id = a.ancestor_id AND s.kind = 'module'
    JOIN forwards AS f ON f.trace_id = a.trace_id AND f.event_id = a.event_id
    LEFT JOIN _work_contexts AS c ON c.trace_id = a.trace_id AND c.event_id = a.event_id
    WHERE c.event_id IS NULL OR a.height < c.height
),
-- A recomputed module is already in the chain if the hook that recomputes it belongs to an operator inside it.
beyond AS (
    SELECT
        c.trace_id, c.event_id, a.module_event_id, a.name, c.height + a.height AS height, c.recomputed_module,
        max(CASE WHEN a.name = c.recomputed_module THEN c.height + a.height END) OVER (
            PARTITION BY c.trace_id, c.event_id
        ) AS recomputed_height
    FROM _work_contexts AS c
    JOIN around AS a ON a.trace_id = c.trace_id AND a.event_id = c.forward_event_id
    JOIN forwards AS f ON f.trace_id = c.trace_id AND f.event_id = c.event_id
)
SELECT
    trace_id,  -- The trace.
    event_id AS forward_event_id,  -- The forward operator.
    module_event_id,  -- Call of the module.
    name,  -- Name of the module.
    height  -- Order of the modules from the inside out; the innermost module has the lowest number.
FROM around
UNION ALL
SELECT trace_id, event_id, module_event_id, name, height
FROM beyond
WHERE recomputed_height IS NULL OR height > recomputed_height;

-- model: _launch_spans
-- One row: a launch of GPU work, a span that owns the work, and the phase in which the span owns it.
-- How: the spans around the launch up to the first backward operator, the modules of that operator's forward, and the
-- windows of steps, annotations and tasks.
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
    -- A module around a backward operator does not belong to its forward: the backward pass was called inside that
    -- module.
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
    is_innermost  -- True if no span inside this span owns the work in this phase; NULL for window.
FROM innermost
UNION ALL
SELECT trace_id, launch_event_id, span_id, 'window', NULL
FROM _launch_windows;
