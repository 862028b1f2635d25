-- One row: a trace, with counts and times over its events.
SELECT
    trace_id,  -- The trace.
    count(*) AS n_events,  -- Entries of traceEvents.
    count(*) FILTER (WHERE ph IS NOT NULL OR start_ns IS NOT NULL) AS n_readable,  -- Entries with a phase or a time.
    -- Earliest start of an event with a duration, ns.
    min(CASE WHEN duration_ns IS NOT NULL THEN start_ns END) AS trace_start_ns,
    -- Latest end of an event with a duration, ns.
    max(CASE WHEN duration_ns IS NOT NULL THEN end_ns END) AS trace_end_ns,
    -- Earliest time of any event but metadata, ns.
    min(start_ns) FILTER (WHERE ph IS DISTINCT FROM 'M') AS least_ts_ns,
    -- Latest time of any event but metadata, ns.
    max(start_ns) FILTER (WHERE ph IS DISTINCT FROM 'M') AS greatest_ts_ns,
    count(*) FILTER (WHERE ph = 'B') AS n_begins,  -- Begin events.
    count(*) FILTER (WHERE ph = 'E') AS n_ends,  -- End events.
    count(*) FILTER (WHERE duration_ns < 0) AS n_negative,  -- Events with a negative duration.
    count(*) FILTER (WHERE time_flaw = 'not_a_number') AS n_not_a_number,  -- Events with a time that is not a number.
    -- Events whose time or duration is outside the lake's limits.
    count(*) FILTER (WHERE time_flaw = 'out_of_range') AS n_out_of_range,
    -- Events with a time finer than a nanosecond.
    count(*) FILTER (WHERE time_flaw = 'sub_nanosecond') AS n_sub_nanosecond,
    count(*) FILTER (WHERE cat = 'kernel') AS n_kernels,  -- Kernels.
    -- Operators, user annotations and Python functions.
    count(*) FILTER (WHERE cat IN ('cpu_op', 'user_annotation', 'python_function')) AS n_operators,
    count(*) FILTER (WHERE cat = 'cuda_profiler_range') AS n_counter_ranges,  -- Ranges of Kineto's range profiler.
    -- Waits on XPU whose process is not stated.
    count(*) FILTER (WHERE cat = 'xpu_sync' AND pid = '-1') AS n_without_process,
    -- Least process of calls that launch or wait.
    min(pid) FILTER (WHERE correlation > 0 AND ends_with(cat, '_runtime')) AS least_calling_pid,
    -- Greatest process of these calls; the same if only one process calls.
    max(pid) FILTER (WHERE correlation > 0 AND ends_with(cat, '_runtime')) AS greatest_calling_pid
FROM events
GROUP BY trace_id
