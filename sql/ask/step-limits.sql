-- Topic: Steps
-- Question: What limits each step: loading, computing or saving?
-- Reading: `dragging_stage` is the longest stage; the step cannot be shorter than it. `loader_stall_ms` is time that
-- the step waited for data. `communication_exposed_percent` is a share of the communication's time; in `gpu-idle` it is
-- one of the span.
SELECT
    t.job, t.rank, p.step, round(p.duration_ns / 1e6, 2) AS step_ms, p.dragging_stage,
    round(p.load_ns / 1e6, 2) AS load_ms,
    round(p.comp_ns / 1e6, 2) AS compute_ms, round(p.loader_stall_ns / 1e6, 2) AS loader_stall_ms,
    round(p.exposed_communication_percent, 1) AS communication_exposed_percent, p.suspect
FROM step_pipeline AS p
JOIN traces AS t ON p.trace_id = t.trace_id
ORDER BY p.duration_ns DESC, t.job, t.rank, p.step, t.trace_id
