-- One row: a name and shape of operators, calls, annotations or GPU activities in a profiler step of a trace.
-- How: GPU work has the shape of the operator with the same External id (or, if the work has none, with the id of its
-- launch) and the step of its launch.
-- check: unique(trace_id, step, device, cat, name, input_dims, input_types)
WITH work AS (
    SELECT
        e.trace_id, s.side AS device, e.cat, e.name, e.duration_ns,
        CASE WHEN s.side = 'gpu' THEN k.launch_event_id ELSE e.event_id END AS host_event_id,
        CASE WHEN s.side = 'gpu' THEN coalesce(e.external_id, l.external_id) END AS external_id,
        CASE WHEN e.cat = 'cpu_op' THEN e.args END AS args
    FROM events AS e
    JOIN category_sides AS s ON s.cat = e.cat AND (s.is_operator OR s.cat = 'user_annotation')
    LEFT JOIN kernels AS k ON k.trace_id = e.trace_id AND k.event_id = e.event_id
    LEFT JOIN events AS l ON l.trace_id = k.trace_id AND l.event_id = k.launch_event_id
    WHERE e.duration_ns IS NOT NULL AND e.start_ns IS NOT NULL
),
shaped AS (
    SELECT trace_id, external_id, args
    FROM events
    WHERE cat = 'cpu_op' AND external_id IS NOT NULL AND contains(args, '"Input ')
    QUALIFY row_number() OVER (PARTITION BY trace_id, external_id ORDER BY event_id) = 1
),
stepped AS (
    SELECT w.trace_id, w.device, w.cat, w.name, w.duration_ns, coalesce(w.args, o.args) AS args, p.step
    FROM work AS w
    LEFT JOIN shaped AS o ON o.trace_id = w.trace_id AND o.external_id = w.external_id
    LEFT JOIN _event_steps AS p ON p.trace_id = w.trace_id AND p.event_id = w.host_event_id
)
SELECT
    trace_id,  -- The trace.
    step,  -- Number of the profiler step; NULL outside steps, and for GPU work whose launch is not in the trace.
    device,  -- cpu or gpu.
    cat,  -- Category: cpu_op, cuda_runtime, kernel, …
    name,  -- Name.
    -- Sizes of the inputs, as JSON; NULL if the trace does not record shapes.
    coalesce(args ->> '$."Input Dims"', args ->> '$."Input dims"') AS input_dims,
    -- Types of the inputs, as JSON; NULL if the trace does not record them.
    coalesce(args ->> '$."Input type"', args ->> '$."Input Type"') AS input_types,
    count(*) AS n,  -- Number of events.
    TRY_CAST(sum(duration_ns) AS BIGINT) AS duration_ns,  -- Summed duration of these events, ns.
    avg(duration_ns) AS mean_ns,  -- Mean duration of these events, ns.
    min(duration_ns) AS min_ns,  -- Shortest duration, ns.
    max(duration_ns) AS max_ns  -- Longest duration, ns.
FROM stepped
GROUP BY
    trace_id, step, device, cat, name,
    coalesce(args ->> '$."Input Dims"', args ->> '$."Input dims"'),
    coalesce(args ->> '$."Input type"', args ->> '$."Input Type"')
