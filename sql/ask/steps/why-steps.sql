-- Question: What limits each step: data loading, the host, launches, communication or the GPU?
-- Reading: The largest cause of each profiler step and its share of the step, on the path of the whole trace. `why`
-- lists all causes on that path.
-- Words: launch bound, data loader, data loading, slow steps
WITH lengths AS (
    SELECT trace_id, step, duration_ns, max(compute_ns) AS compute_ns
    FROM step_times
    GROUP BY trace_id, step, duration_ns
)
SELECT
    coalesce(t.job, t.file) AS job, t.rank, c.step, round(s.duration_ns / 1e6, 2) AS step_ms, c.cause, c.name,
    round(c.percent, 1) AS percent, round(s.compute_ns / 1e6, 2) AS gpu_computes_ms
FROM step_causes AS c
JOIN lengths AS s ON c.trace_id = s.trace_id AND c.step = s.step
JOIN traces AS t ON c.trace_id = t.trace_id
QUALIFY row_number() OVER (PARTITION BY c.trace_id, c.step ORDER BY c.duration_ns DESC, c.cause, c.name) = 1
ORDER BY s.duration_ns DESC, job, t.rank, c.step, c.trace_id
