-- Question: Which modules and annotations take the GPU's time?
-- Reading: GPU work belongs to the module of its launch call; in phase `replay`, to the module of the captured call.
-- Without the capture, replays are in no module. A nested module also counts in its parent. NULL: the traces have no
-- GPU work.
SELECT
    coalesce(t.job, t.file) AS job, s.kind, s.name, s.phase, sum(s.n_spans) AS n_calls, sum(s.n) AS n_kernels,
    round(sum(s.busy_ns) / 1e6, 2) AS gpu_busy_ms,
    round(sum(s.host_ns) / 1e6, 2) AS host_ms
FROM span_names AS s
JOIN traces AS t ON s.trace_id = t.trace_id
GROUP BY coalesce(t.job, t.file), coalesce(t.job, t.trace_id), s.kind, s.name, s.phase
ORDER BY sum(s.busy_ns) DESC, s.kind, s.name, s.phase, job, coalesce(t.job, t.trace_id)
