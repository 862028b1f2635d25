-- One row: a trace with GPU work, with the number of GPU activities by their attribution to spans.
-- How: counts of GPU activities by the spans and operators around their launches.
-- check: unique(trace_id)
WITH owners AS (
    SELECT
        l.trace_id, l.launch_event_id,
        bool_or(l.phase = 'fwd') AS in_forward_span,
        bool_or(l.phase = 'fwd' AND s.kind = 'module') AS in_forward_module,
        bool_or(l.phase = 'bwd') AS in_backward_module
    FROM _launch_spans AS l
    JOIN _span_events AS s ON s.trace_id = l.trace_id AND s.event_id = l.span_id
    GROUP BY l.trace_id, l.launch_event_id
),
work AS (
    SELECT
        k.trace_id, k.event_id, k.launch_event_id, k.duration_ns, c.backward_event_id, c.forward_event_id, c.how,
        c.recomputed_module IS NOT NULL AS is_recompute, o.launch_event_id IS NOT NULL AS has_span,
        coalesce(o.in_forward_span, FALSE) AS in_forward_span,
        coalesce(o.in_forward_module, FALSE) AS in_forward_module,
        coalesce(o.in_backward_module, FALSE) AS in_backward_module
    FROM kernels AS k
    LEFT JOIN _work_contexts AS c ON c.trace_id = k.trace_id AND c.event_id = k.launch_event_id
    LEFT JOIN owners AS o ON o.trace_id = k.trace_id AND o.launch_event_id = k.launch_event_id
),
counted AS (
    SELECT
        trace_id, count(*) AS n_work, sum(duration_ns) AS sum_ns,
        count(*) FILTER (WHERE launch_event_id IS NULL) AS n_no_launch,
        count(*) FILTER (WHERE launch_event_id IS NOT NULL AND NOT has_span) AS n_outside_spans,
        count(*) FILTER (WHERE launch_event_id IS NOT NULL AND backward_event_id IS NULL) AS n_forward,
        count(*) FILTER (WHERE in_forward_span) AS n_in_forward_span,
        count(*) FILTER (WHERE in_forward_module) AS n_in_forward_module,
        count(*) FILTER (WHERE backward_event_id IS NOT NULL) AS n_under_backward,
        count(*) FILTER (WHERE how = 'flow') AS n_by_flow,
        count(*) FILTER (WHERE how = 'sequence') AS n_by_sequence,
        count(*) FILTER (WHERE is_recompute) AS n_recompute,
        count(*) FILTER (WHERE is_recompute AND forward_event_id IS NULL) AS n_recompute_without_forward,
        count(*) FILTER (WHERE NOT is_recompute AND forward_event_id IS NOT NULL) AS n_backward_linked,
        count(*) FILTER (WHERE in_backward_module) AS n_in_backward_module,
        count(*) FILTER (
            WHERE backward_event_id IS NOT NULL AND NOT is_recompute AND forward_event_id IS NULL
        ) AS n_backward_without_forward
    FROM work
    GROUP BY trace_id
),
crossing AS (
    SELECT trace_id, count(*) AS n FROM _host_stacks WHERE crosses GROUP BY trace_id
)
SELECT
    c.trace_id,  -- The trace.
    c.n_work,  -- GPU activities.
    TRY_CAST(c.sum_ns AS BIGINT) AS sum_ns,  -- Summed duration of the activities, ns.
    c.n_no_launch,  -- Activities whose launch is not in the trace.
    c.n_outside_spans,  -- Activities launched outside of all spans.
    c.n_forward,  -- Activities launched outside of backward operators.
    c.n_in_forward_span,  -- Activities of n_forward in a span on their thread.
    c.n_in_forward_module,  -- Activities of n_forward in a module.
    c.n_under_backward,  -- Activities launched by backward operators.
    c.n_by_flow,  -- Activities of n_under_backward whose forward operator follows from the profiler's arrow.
    c.n_by_sequence,  -- Activities of n_under_backward whose forward operator follows from the sequence number.
    c.n_recompute,  -- Activities of n_under_backward that recompute the forward (activation checkpointing).
    -- Activities of n_recompute whose outer modules are unknown, because the backward operator has no forward in the
    -- trace.
    c.n_recompute_without_forward,
    c.n_backward_linked,  -- Activities of the backward proper, with the forward operator in the trace.
    c.n_in_backward_module,  -- Activities of n_backward_linked in a module.
    c.n_backward_without_forward,  -- Activities of the backward proper whose forward operator is not in the trace.
    -- Host events that end after the event in which they started; they remain its children.
    coalesce(x.n, 0) AS n_crossing_pairs
FROM counted AS c
LEFT JOIN crossing AS x ON x.trace_id = c.trace_id
