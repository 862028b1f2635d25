-- One row: a span: a profiler step, an annotation, a call of a module, or a task of a software pipeline.
-- How: host events by name. The parent is the innermost span on the same thread in which the span started. A span that
-- ends after its parent remains its child.
-- check: unique(trace_id, span_id)
WITH lowest AS (
    SELECT a.trace_id, a.event_id, min(a.height) AS height
    FROM _host_ancestors AS a
    JOIN _span_events AS inside ON inside.trace_id = a.trace_id AND inside.event_id = a.event_id
    JOIN _span_events AS outside ON outside.trace_id = a.trace_id AND outside.event_id = a.ancestor_id
    GROUP BY a.trace_id, a.event_id
),
parents AS (
    SELECT a.trace_id, a.event_id, a.ancestor_id
    FROM lowest AS l
    JOIN _host_ancestors AS a ON a.trace_id = l.trace_id AND a.event_id = l.event_id AND a.height = l.height
)
SELECT
    s.trace_id,  -- The trace.
    s.event_id AS span_id,  -- The span: its position in traceEvents.
    p.ancestor_id AS parent_id,  -- Innermost span on the same thread in which it started; NULL at the top.
    s.kind,  -- step (ProfilerStep#N), annotation, module (nn.Module) or task (SWP/Task/iterN, SWP_serial/Task/iterN).
    s.name,  -- Name; for a module its class and number, like Linear_3.
    s.family,  -- The name without the number: the module's class, the task, ProfilerStep; an annotation's name.
    -- The number in the name: of the step, the module in its class, the task's iteration; NULL for annotations.
    s.number,
    s.pid,  -- Process.
    s.tid,  -- Thread.
    s.start_ns,  -- Start on the host, ns.
    s.duration_ns,  -- Duration on the host, ns.
    s.end_ns  -- End on the host, ns.
FROM _span_events AS s
LEFT JOIN parents AS p ON p.trace_id = s.trace_id AND p.event_id = s.event_id
