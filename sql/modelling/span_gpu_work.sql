-- One row: a span, a piece of GPU work that belongs to it, and in which phase.
-- How: through the call that launched the work. Inclusive: the work of a span belongs to the spans around it too.
-- Never add up phases: a launch in a step is in its window and, on the same thread, in its fwd.
-- check: unique(trace_id, span_id, phase, event_id)
SELECT
    k.trace_id,  -- The trace.
    s.span_id,  -- The span.
    s.phase,  -- fwd: launched inside the span; bwd: launched by the backward of an operator inside the module; recompute: the module's forward computed again during backward; bwd_direct: launched by a backward operator inside the annotation, on its thread; window: launched while the step, annotation or task lasted, on any thread of the process.
    k.event_id,  -- The piece of GPU work in kernels.
    s.is_innermost  -- No other span inside of this one owns the work in this phase; NULL for window.
FROM kernels AS k
JOIN _launch_spans AS s ON s.trace_id = k.trace_id AND s.launch_event_id = k.launch_event_id
