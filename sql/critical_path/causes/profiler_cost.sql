-- One row: a window that the critical path covers, and how much of it is the profiler that recorded it.
-- How: the graph retimed with each edge of a host thread shortened by what recording the events on it costs
-- (profiler_costs, in proportion to the host's slowness, or as the trace's own metadata say), and without the
-- profiler's start. NULL where that is unknown: traces of other writers than PyTorch's profiler, without operators,
-- or with too many edges (retimed_edges).
-- check: unique(trace_id, window_id)
SELECT
    g.trace_id,  -- The trace.
    g.window_id,  -- The window: full, or a step.
    g.length_ns,  -- Its length, ns.
    r.without_profiler_ns,  -- Its length without the profiler, ns.
    g.n_steps,  -- Profiler steps that lie in it.
    r.n_operators,  -- Operators that start in it.
    r.n_calls,  -- Calls of the GPU's runtime.
    r.n_frames,  -- Python functions.
    r.n_annotations,  -- Annotations.
    -- What recording the operators costs, ns: the window is shorter by less, where the host is not what it waits for.
    r.operators_ns,
    r.calls_ns,  -- The calls, ns.
    r.frames_ns,  -- The Python functions, ns.
    r.annotations_ns,  -- The annotations, ns.
    r.start_ns,  -- The profiler's start: host time outside operators before the first step, ns.
    -- How many times slower the host is than the one on which the costs were measured, by its cheapest operators.
    r.slowness,
    r.scale  -- What the costs of events were multiplied by: 1, unless the time without the profiler was given.
FROM window_gpu_time AS g
JOIN critical_path_windows AS w ON w.trace_id = g.trace_id AND w.window_id = g.window_id
LEFT JOIN _recording_costs AS r ON r.window_no = w.window_no
