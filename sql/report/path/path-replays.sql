-- Question: Which operators do the replays on the path belong to?
-- Reading: Kernels of graph replays on the path, by operator, module and layer.
SELECT x.*
FROM critical_path_by_operator AS x
JOIN traces AS t ON x.trace_id = t.trace_id
WHERE x.window_id = 'full' AND x.is_replay
ORDER BY x.duration_ns DESC, x.op, x.module, x.layer, x.source
