-- One row: a reason why GPU work of a trace could not be attributed to spans, with the amount of that work. This work
-- is not distributed over spans.
-- How: the first reason that applies to each GPU activity. Fully attributed work has no reason.
-- check: unique(trace_id, reason)
WITH has_span AS (
    SELECT DISTINCT trace_id, launch_event_id FROM _launch_spans
),
reasons AS (
    SELECT
        k.trace_id, k.duration_ns,
        CASE
            WHEN k.launch_event_id IS NULL THEN 'no_launch'
            WHEN c.recomputed_module IS NOT NULL AND c.forward_event_id IS NULL THEN 'recompute_without_forward'
            WHEN c.event_id IS NOT NULL AND c.forward_event_id IS NULL THEN 'backward_without_forward'
            WHEN s.launch_event_id IS NULL THEN 'outside_spans'
        END AS reason
    FROM kernels AS k
    LEFT JOIN has_span AS s ON s.trace_id = k.trace_id AND s.launch_event_id = k.launch_event_id
    LEFT JOIN _work_contexts AS c ON c.trace_id = k.trace_id AND c.event_id = k.launch_event_id
)
SELECT
    trace_id,  -- The trace.
    -- no_launch: the launch call is not in the trace, so the work is in no span; outside_spans: launched outside of all
    -- spans; backward_without_forward, recompute_without_forward: launched by a backward operator whose forward is not
    -- in the trace, so the work is in no module of that forward, but in its step's window.
    reason,
    count(*) AS n,  -- GPU activities.
    TRY_CAST(sum(duration_ns) AS BIGINT) AS sum_ns  -- Summed duration of the activities, ns.
FROM reasons
WHERE reason IS NOT NULL
GROUP BY trace_id, reason
