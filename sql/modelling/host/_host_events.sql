-- One row: a host event with a duration.
-- How: _host_stacks and _host_ancestors (pipelines/modelling/stacks.py) read this table. For each event with is_inner,
-- _host_ancestors lists the enclosing events with is_outer.
-- check: unique(trace_id, event_id)
WITH inner_events AS (
    SELECT trace_id, launch_event_id AS event_id FROM kernels WHERE launch_event_id IS NOT NULL
    UNION
    SELECT trace_id, event_id FROM _capture_calls
    UNION
    SELECT trace_id, forward_event_id FROM backward_links WHERE forward_event_id IS NOT NULL
    UNION
    SELECT trace_id, event_id FROM _span_events
)
SELECT
    e.trace_id,  -- The trace.
    e.event_id,  -- Position in traceEvents.
    t.thread_id,  -- Thread of the event, in threads.
    e.start_ns,  -- Start, ns.
    e.start_ns + greatest(e.duration_ns, 0) AS end_ns,  -- End, ns.
    -- True for a launch or capture of GPU work, a forward operator with a backward, or a span.
    i.event_id IS NOT NULL AS is_inner,
    s.event_id IS NOT NULL OR b.backward_event_id IS NOT NULL AS is_outer  -- True for a span or a backward operator.
FROM events AS e
JOIN threads AS t ON t.trace_id = e.trace_id AND t.pid = e.pid AND t.tid = e.tid
LEFT JOIN category_sides AS c ON c.cat = e.cat
LEFT JOIN inner_events AS i ON i.trace_id = e.trace_id AND i.event_id = e.event_id
LEFT JOIN _span_events AS s ON s.trace_id = e.trace_id AND s.event_id = e.event_id
LEFT JOIN backward_links AS b ON b.trace_id = e.trace_id AND b.backward_event_id = e.event_id
WHERE e.duration_ns IS NOT NULL AND e.start_ns IS NOT NULL AND e.cat IS NOT NULL AND coalesce(c.side, 'cpu') = 'cpu'
