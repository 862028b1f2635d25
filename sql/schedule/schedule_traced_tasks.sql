-- One row: a task of a run as recorded in the run's trace, with the time that a serial iteration saves without the
-- task, and the predicted stall. One row without a task contains everything that belongs to no task.
-- How: a task owns the GPU work that its events (schedule_task_events) launched. So the rows of a trace add up to the
-- whole trace. The critical path is the path of the whole trace.
-- scope: lake
WITH ran AS (
    SELECT DISTINCT run_id, trace_id FROM schedule_spans
),
on_path AS (
    SELECT
        p.trace_id, o.task, sum(p.duration_ns) AS path_ns,
        sum(CASE WHEN k.event_id IS NULL THEN 0 ELSE p.duration_ns END) AS kernel_path_ns
    FROM critical_path AS p
    JOIN ran AS r ON r.trace_id = p.trace_id
    LEFT JOIN kernels AS k ON k.trace_id = p.trace_id AND k.event_id = p.attributed_event_id
    -- The CPU event that determines the task: the launch call of GPU work, else the event itself.
    LEFT JOIN schedule_task_events AS o
        ON o.trace_id = p.trace_id AND o.event_id = coalesce(k.launch_event_id, p.attributed_event_id)
    WHERE p.window_id = 'full'
    GROUP BY p.trace_id, o.task
),
launched AS (
    SELECT k.trace_id, o.task, count(*) AS n_kernels, sum(k.duration_ns) AS kernel_ns
    FROM kernels AS k
    JOIN ran AS r ON r.trace_id = k.trace_id
    LEFT JOIN schedule_task_events AS o ON o.trace_id = k.trace_id AND o.event_id = k.launch_event_id
    GROUP BY k.trace_id, o.task
),
slacks AS (
    SELECT x.trace_id, o.task, min(x.slack_ns) AS slack_ns
    FROM event_slack AS x
    JOIN ran AS r ON r.trace_id = x.trace_id
    LEFT JOIN kernels AS k ON k.trace_id = x.trace_id AND k.event_id = x.event_id
    LEFT JOIN schedule_task_events AS o
        ON o.trace_id = x.trace_id AND o.event_id = coalesce(k.launch_event_id, x.event_id)
    WHERE x.window_id = 'full'
    GROUP BY x.trace_id, o.task
),
spans AS (
    SELECT run_id, trace_id, task, count(*) AS n_spans, sum(duration_ns) AS span_ns
    FROM schedule_spans
    GROUP BY run_id, trace_id, task
    UNION ALL
    SELECT run_id, trace_id, NULL, NULL, NULL FROM ran
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
        CASE WHEN g.trace_id IS NOT NULL THEN coalesce(p.path_ns, 0) END AS path_ns,
        CASE WHEN g.trace_id IS NOT NULL THEN coalesce(p.kernel_path_ns, 0) END AS kernel_path_ns,
        1e0 * coalesce(p.path_ns, 0) / nullif(g.length_ns, 0) AS path_share, z.slack_ns,
        x.exposed_ns, 1e0 * x.exposed_ns / nullif(x.baseline_ns, 0) AS exposed_share, w.stall_ns AS predicted_stall_ns
    FROM spans AS s
    LEFT JOIN launched AS l ON l.trace_id = s.trace_id AND l.task IS NOT DISTINCT FROM s.task
    LEFT JOIN on_path AS p ON p.trace_id = s.trace_id AND p.task IS NOT DISTINCT FROM s.task
    LEFT JOIN slacks AS z ON z.trace_id = s.trace_id AND z.task IS NOT DISTINCT FROM s.task
    LEFT JOIN lengths AS g ON g.trace_id = s.trace_id
    LEFT JOIN schedule_exposed_times AS x ON x.run_id = s.run_id AND x.task = s.task
    LEFT JOIN schedule_predictions AS w ON w.run_id = s.run_id AND w.task = s.task
)
SELECT
    run_id,  -- The run.
    trace_id,  -- Trace of the run.
    task,  -- The task; NULL for events that belong to no task.
    n_spans,  -- Iterations in the trace; NULL without a task.
    -- Summed duration of its annotations on the host, ns; NULL without a task.
    CAST(span_ns AS BIGINT) AS span_ns,
    n_kernels,  -- GPU activities that the task launched; NULL without any.
    CAST(kernel_ns AS BIGINT) AS kernel_ns,  -- Summed duration of these activities, ns.
    -- Time of the task on the critical path of the trace, ns; NULL in a trace without a path.
    CAST(path_ns AS BIGINT) AS path_ns,
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
