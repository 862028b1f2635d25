-- One row: a window of a trace as requested, before it is known which events ran in it (critical_path_windows).
-- How: without an annotation, the whole trace. With an annotation, from the first to the last requested instance.
-- PyTorch's profiler synchronizes the device when it starts (Kineto, synchronizeGpuDevice). If working threads only
-- synchronize before the first profiler step, a window with a covering path begins with the step.
WITH asked AS (
    SELECT w.*, p.trace_profile_id, p.instances_on_cpu, p.covers_window
    FROM window_requests AS w
    JOIN _profiles AS p ON p.trace_id = w.trace_id AND p.profile = w.profile
),
-- If an annotation equals the whole name of an event, only that name matches: ProfilerStep#5 does not match
-- ProfilerStep#50. In default, the name of a step matches no other step even if the trace does not contain it.
named AS (
    SELECT w.trace_id, w.window_id, w.trace_profile_id, w.instances_on_cpu, e.event_id, e.name
    FROM asked AS w
    JOIN events AS e ON e.trace_id = w.trace_id AND e.name = w.annotation
    LEFT JOIN category_sides AS s ON s.cat = e.cat
    WHERE
        w.annotation <> '' AND w.instances_on_cpu AND e.cat <> 'python_function' AND coalesce(s.side, 'cpu') = 'cpu'
),
named_windows AS (
    SELECT DISTINCT trace_id, window_id FROM named
),
loosely AS (
    SELECT w.*
    FROM asked AS w
    LEFT JOIN named_windows AS n ON n.trace_id = w.trace_id AND n.window_id = w.window_id
    WHERE
        w.annotation <> '' AND n.window_id IS NULL
        AND NOT (w.instances_on_cpu AND regexp_matches(w.annotation, '^ProfilerStep#[0-9]+$'))
),
candidates AS (
    SELECT trace_id, window_id, trace_profile_id, instances_on_cpu, event_id, name FROM named
    UNION ALL
    SELECT w.trace_id, w.window_id, w.trace_profile_id, w.instances_on_cpu, e.event_id, e.name
    FROM loosely AS w
    JOIN events AS e ON e.trace_id = w.trace_id AND contains(e.name, w.annotation)
    WHERE NOT w.instances_on_cpu OR e.cat <> 'python_function'
),
matching AS (
    SELECT
        c.trace_id, c.window_id, l.start_ns, l.start_ns + l.duration_ns AS end_ns,
        CASE WHEN c.instances_on_cpu THEN l.start_ns WHEN l.sorts_first THEN 0 ELSE 1 END AS turn, l.event_id,
        -- In default, a profiler step annotated on several threads is one instance.
        CASE
            WHEN c.instances_on_cpu AND regexp_matches(c.name, '^ProfilerStep#[0-9]+$') THEN c.name
            ELSE CAST(l.event_id AS VARCHAR)
        END AS occurrence
    FROM candidates AS c
    JOIN _loaded_events AS l ON l.trace_profile_id = c.trace_profile_id AND l.event_id = c.event_id
    WHERE NOT c.instances_on_cpu OR l.side = 'cpu'
),
occurrences AS (
    SELECT
        trace_id, window_id, min(start_ns) AS start_ns, max(end_ns) AS end_ns,
        row_number() OVER (PARTITION BY trace_id, window_id ORDER BY min(turn), min(event_id)) - 1 AS instance
    FROM matching
    GROUP BY trace_id, window_id, occurrence
),
-- One row: a window that an annotation opens, by its first and last requested instance.
-- How: instances, counted from 0, of the rows whose name equals (default) or contains (HTA 2.8.1) the annotation.
annotated_windows AS (
    SELECT
        o.trace_id,  -- The trace.
        o.window_id,  -- Name of the window.
        min(o.start_ns) AS start_ns,  -- Start of the first instance, ns.
        max(o.end_ns) AS end_ns  -- End of the last instance, ns.
    FROM occurrences AS o
    JOIN asked AS w ON w.trace_id = o.trace_id AND w.window_id = o.window_id
    WHERE o.instance BETWEEN w.first_instance AND w.last_instance
    GROUP BY o.trace_id, o.window_id
    -- In default, a range beyond the last instance is an error. HTA uses the existing instances.
    HAVING max(o.instance) = max(w.last_instance) OR NOT bool_or(w.instances_on_cpu)
),
first_steps AS (
    SELECT trace_id, min(start_ns) AS first_step_ns
    FROM profiler_steps
    GROUP BY trace_id
),
whole_traces AS (
    SELECT
        w.trace_id, w.window_id, w.trace_profile_id, CASE WHEN w.covers_window THEN s.first_step_ns END AS first_step_ns
    FROM asked AS w
    LEFT JOIN first_steps AS s ON s.trace_id = w.trace_id
    WHERE w.annotation = ''
),
timed AS (
    SELECT
        w.trace_id, w.window_id, w.first_step_ns, l.start_ns, l.start_ns + l.duration_ns AS end_ns,
        -- Excludes cuda_sync rows, because they record the waits of calls.
        l.side = 'gpu' OR r.is_working AND NOT l.waits_for_device AND NOT l.is_frame AS is_work
    FROM whole_traces AS w
    JOIN _loaded_events AS l ON l.trace_profile_id = w.trace_profile_id
    LEFT JOIN _thread_roles AS r ON r.trace_profile_id = l.trace_profile_id AND r.thread_id = l.thread_id
),
whole AS (
    SELECT
        trace_id, window_id, max(end_ns) AS end_ns,
        CASE
            WHEN bool_or(is_work AND start_ns < first_step_ns) THEN min(start_ns)
            ELSE coalesce(max(first_step_ns), min(start_ns))
        END AS start_ns
    FROM timed
    GROUP BY trace_id, window_id
),
recording AS (
    SELECT DISTINCT trace_profile_id FROM _loaded_events WHERE sync_kind IS NOT NULL
),
bounds AS (
    SELECT trace_id, window_id, start_ns, end_ns FROM annotated_windows
    UNION ALL
    SELECT trace_id, window_id, start_ns, end_ns FROM whole
)
SELECT
    b.trace_id,  -- The trace.
    b.window_id,  -- Name of the window; full is the whole trace.
    w.profile,  -- hta or default.
    w.annotation,  -- Text that the annotation's name contains; empty for the whole trace.
    w.first_instance,  -- First instance of the annotation, from 0.
    w.last_instance,  -- Last instance, inclusive.
    b.start_ns,  -- Start of the window, ns.
    b.end_ns,  -- End of the window, ns.
    -- Number of the window within this computation; private models join on it.
    row_number() OVER (ORDER BY b.trace_id, b.window_id) AS window_no,
    w.trace_profile_id,  -- Number of the trace and profile within this computation.
    w.covers_window,  -- The profile's path covers all of the window.
    r.trace_profile_id IS NOT NULL AS records_waits  -- The trace records waits for GPU work (cuda_sync rows).
FROM bounds AS b
JOIN asked AS w ON w.trace_id = b.trace_id AND w.window_id = b.window_id
LEFT JOIN recording AS r ON r.trace_profile_id = w.trace_profile_id
