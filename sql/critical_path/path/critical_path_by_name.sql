-- One row: the name of a kernel or operator on the critical path of a window.
-- How: sum the events with time on the path (HTA 2.8.6) by name and category.
-- check: unique(trace_id, window_id, name, cat)
SELECT
    trace_id,  -- The trace.
    window_id,  -- The window.
    name,  -- Name of the kernel or operator.
    cat,  -- Its category: kernel, gpu_memcpy, cpu_op, cuda_runtime, …
    count(*) AS n_events,  -- Number of events of that name on the path.
    TRY_CAST(sum(duration_ns) AS BIGINT) AS duration_ns  -- Time of these events on the path, ns.
FROM _path_by_event
GROUP BY trace_id, window_id, name, cat
