-- Question: What limits each step: data loading, the host, launches, communication or the GPU?
-- Reading: The largest cause of each profiler step and its share of the step; `why` has all causes of the whole trace.
-- Words: launch bound, data loader, data loading, slow steps
SELECT
    coalesce(t.job, t.file) AS job, t.rank,
    c.window_id AS step, round(w.length_ns / 1e6, 2) AS step_ms, c.cause, c.name,
    round(c.share_percent, 1) AS percent, round(w.computing_ns / 1e6, 2) AS gpu_computes_ms
FROM causes AS c
JOIN window_gpu_time AS w ON c.trace_id = w.trace_id AND c.window_id = w.window_id
JOIN traces AS t ON c.trace_id = t.trace_id
WHERE c.window_id <> 'full'
QUALIFY row_number() OVER (PARTITION BY c.trace_id, c.window_id ORDER BY c.duration_ns DESC, c.cause, c.name) = 1
ORDER BY w.length_ns DESC, job, t.rank, c.window_id, c.trace_id
