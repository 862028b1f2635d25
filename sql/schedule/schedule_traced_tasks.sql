-- One row: a task of a run as recorded in the run's trace, with the time that a serial iteration saves without the
-- task, and the predicted stall.
-- How: an event belongs to a span if the event, or its launch call, started during the span on the same thread. The
-- critical path is that of the whole trace.
-- scope: lake
WITH callers AS (
    -- The CPU event that determines the task: the launch call of GPU work, else the event itself.
    SELECT
        p.trace_id, p.duration_ns, k.event_id AS kernel_id,
        coalesce(k.launch_event_id, p.attributed_event_id) AS caller_id
    FROM critical_path AS p
    LEFT JOIN kernels AS k ON k.trace_id = p.trace_id AND k.event_id = p.attributed_event_id
    WHERE p.window_id = 'full' AND p.attributed_event_id IS NOT NULL
),
on_path AS (
    SELECT
        s.run_id, s.task,
        sum(c.duration_ns) AS path_ns,
        sum(CASE WHEN c.kernel_id IS NULL THEN 0 ELSE c.duration_ns END) AS kernel_path_ns
    FROM callers AS c
    JOIN events AS e ON e.trace_id = c.trace_id AND e.event_id = c.caller_id
    JOIN schedule_spans AS s
        ON s.trace_id = c.trace_id AND s.pid = e.pid AND s.tid = e.tid AND e.start_ns >= s.start_ns
            AND e.start_ns < s.start_ns + s.duration_ns
    GROUP BY s.run_id, s.task
),
launched AS (
    SELECT s.run_id, s.task, count(*) AS n_kernels, sum(k.duration_ns) AS kernel_ns
    FROM kernels AS k
    JOIN events AS e ON e.trace_id = k.trace_id AND e.event_id = k.launch_event_id
    JOIN schedule_spans AS s
        ON s.trace_id = k.trace_id AND s.pid = e.pid AND s.tid = e.tid AND e.start_ns >= s.start_ns
            AND e.start_ns < s.start_ns + s.duration_ns
    GROUP BY s.run_id, s.task
),
slacks AS (
    SELECT s.run_id, s.task, min(x.slack_ns) AS slack_ns
    FROM event_slack AS x
    LEFT JOIN kernels AS k ON k.trace_id = x.trace_id AND k.event_id = x.event_id
    JOIN events AS e ON e.trace_id = x.trace_id AND e.event_id = coalesce(k.launch_event_id, x.event_id)
    JOIN schedule_spans AS s
        ON s.trace_id = x.trace_id AND s.pid = e.pid AND s.tid = e.tid AND e.start_ns >= s.start_ns
            AND e.start_ns < s.start_ns + s.duration_ns
    WHERE x.window_id = 'full'
    GROUP BY s.run_id, s.task
),
spans AS (
    SELECT run_id, trace_id, task, count(*) AS n_spans, sum(duration_ns) AS span_ns
    FROM schedule_spans
    GROUP BY run_id, trace_id, task
),
lengths AS (
    SELECT trace_id, sum(duration_ns) AS length_ns
    FROM critical_path
    WHERE window_id = 'full'
    GROUP BY trace_id
),
joined AS (
    SELECT
        s.run_id, s.trace_id, s.task, s.n_spans, s.span_ns, l.n_kernels, l.kernel_ns,
        coalesce(p.path_ns, 0) AS path_ns, coalesce(p.kernel_path_ns, 0) AS kernel_path_ns,
        1e0 * coalesce(p.path_ns, 0) / nullif(g.length_ns, 0) AS path_share, z.slack_ns,
        x.exposed_ns, 1e0 * x.exposed_ns / nullif(x.baseline_ns, 0) AS exposed_share, w.stall_ns AS predicted_stall_ns
    FROM spans AS s
    LEFT JOIN launched AS l ON l.run_id = s.run_id AND l.task = s.task
    LEFT JOIN on_path AS p ON p.run_id = s.run_id AND p.task = s.task
    LEFT JOIN slacks AS z ON z.run_id = s.run_id AND z.task = s.task
    LEFT JOIN lengths AS g ON g.trace_id = s.trace_id
    LEFT JOIN schedule_exposed_times AS x ON x.run_id = s.run_id AND x.task = s.task
    LEFT JOIN schedule_predictions AS w ON w.run_id = s.run_id AND w.task = s.task
)
SELECT
    run_id,  -- The run.
    trace_id,  -- Trace of the run.
    task,  -- The task.
    n_spans,  -- Iterations in the trace.
    CAST(span_ns AS BIGINT) AS span_ns,  -- Summed duration of its annotations on the host, ns.
    n_kernels,  -- GPU activities launched in these annotations; NULL without any.
    CAST(kernel_ns AS BIGINT) AS kernel_ns,  -- Summed duration of these activities, ns.
    CAST(path_ns AS BIGINT) AS path_ns,  -- Time of the task on the critical path of the trace, ns.
    CAST(kernel_path_ns AS BIGINT) AS kernel_path_ns,  -- Part of path_ns in GPU work, ns.
    100 * path_share AS path_percent,  -- path_ns divided by the path's length, percent.
    -- Smallest slack of its events, ns: how much longer an event may take before the path gets longer; NULL where no
    -- event has a slack.
    slack_ns,
    exposed_ns,  -- Time that a serial iteration saves without the task, ns; NULL where not measured.
    -- exposed_ns divided by the serial iteration, percent; NULL where not measured.
    100 * exposed_share AS exposed_percent,
    predicted_stall_ns,  -- Predicted stall of its stream before the task, ns per iteration.
    CASE
        WHEN exposed_share >= 0.1 AND path_share < 0.01 THEN 'exposed, but not on the path'
        WHEN exposed_share < 0.01 AND path_share >= 0.1 THEN 'on the path, but not exposed'
    END AS disagreement  -- How the two shares disagree, where one is at least 10 % and the other below 1 %; else NULL.
FROM joined
