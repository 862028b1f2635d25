-- One row: the name of a kernel or operator on the critical path of a window.
-- How: the path's edges whose time belongs to an event (HTA 2.8.6), summed by that event's name and category.
-- check: unique(trace_id, window_id, name, cat)
SELECT
    trace_id,  -- The trace.
    window_id,  -- The window.
    name,  -- Name of the kernel or operator.
    cat,  -- Its category: kernel, gpu_memcpy, cpu_op, cuda_runtime, …
    count(DISTINCT attributed_event_id) AS n_events,  -- Events of that name on the path.
    TRY_CAST(sum(duration_ns) AS BIGINT) AS duration_ns  -- Their time on the path, ns.
FROM critical_path
WHERE attributed_event_id IS NOT NULL
GROUP BY trace_id, window_id, name, cat
