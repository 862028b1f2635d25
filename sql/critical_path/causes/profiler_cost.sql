-- One row: a window with a covering path, and the part of its length that is the cost of the profiler.
-- How: retime the graph with each edge of a host thread shortened by the cost of recording the events on it. The costs
-- come from profiler_costs, in proportion to the host's slowness, or from the trace's metadata. The cost is NULL for
-- traces of writers other than PyTorch's profiler, traces without operators, and windows with too many edges
-- (retimed_edges).
-- check: unique(trace_id, window_id)
SELECT
    g.trace_id,  -- The trace.
    g.window_id,  -- The window: full, or a step.
    g.length_ns,  -- Its length, ns.
    r.without_profiler_ns,  -- Its length without the profiler, ns.
    g.n_steps,  -- Number of profiler steps inside it.
    r.n_operators,  -- Number of operators that start in it.
    r.n_calls,  -- Number of calls of the GPU runtime.
    r.n_frames,  -- Number of Python functions.
    r.n_annotations,  -- Number of annotations.
    -- Cost of recording the operators, ns. The window is shorter by less where it does not wait for the host.
    r.operators_ns,
    r.calls_ns,  -- Cost of recording the calls, ns.
    r.frames_ns,  -- Cost of recording the Python functions, ns.
    r.annotations_ns,  -- Cost of recording the annotations, ns.
    -- Slowness of the host, relative to the host on which the costs were measured, by its cheapest operators.
    r.slowness,
    r.scale  -- Factor on the costs of events: 1, unless the time without the profiler was supplied.
FROM window_gpu_time AS g
JOIN critical_path_windows AS w ON w.trace_id = g.trace_id AND w.window_id = g.window_id
LEFT JOIN _recording_costs AS r ON r.window_no = w.window_no
