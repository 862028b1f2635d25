-- One row: a span, a GPU activity that belongs to it, and the phase.
-- How: the call that launched the work determines the spans. The work of a span also belongs to the spans around it.
-- Never add up phases: a launch in a step is in the step's window and, on the same thread, in its fwd.
-- check: unique(trace_id, span_id, phase, event_id)
SELECT
    k.trace_id,  -- The trace.
    s.span_id,  -- The span.
    -- fwd: launched inside the span; bwd: launched by the backward of an operator inside the module; recompute:
    -- launched by the module's forward when it is recomputed during backward; bwd_direct: launched by a backward
    -- operator inside the annotation, on its thread; window: launched during the step, annotation or task, on any
    -- thread of the process.
    s.phase,
    k.event_id,  -- The GPU activity in kernels.
    s.is_innermost  -- True if no span inside this span owns the work in this phase; NULL for window.
FROM kernels AS k
JOIN _launch_spans AS s ON s.trace_id = k.trace_id AND s.launch_event_id = k.launch_event_id
