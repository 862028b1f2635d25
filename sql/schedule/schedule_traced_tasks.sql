-- One row: a task of a run as recorded in the run's trace, with the time that a serial iteration saves without the
-- task, and the predicted stall. One row without a task contains everything that belongs to no task.
-- How: a task owns the events that started during one of its spans, and the GPU work that they launched. An event on
-- another thread belongs to the task that the thread works for, if the thread runs backward operators. That task is one
-- of the process's spans open at that time. Spans in the iteration of the last forward operator whose derivative the
-- thread computed come first, then the span whose own thread has been without an operator or call for longest. So the
-- rows of a trace add up to the whole trace. The critical path is the path of the whole trace.
-- scope: lake
WITH ran AS (
    SELECT DISTINCT run_id, trace_id FROM schedule_spans
),
host AS (
    SELECT
        e.trace_id, e.event_id, e.pid, e.tid, e.start_ns, e.start_ns + greatest(e.duration_ns, 0) AS end_ns,
        coalesce(c.is_operator, FALSE) AS is_work
    FROM events AS e
    JOIN ran AS r ON r.trace_id = e.trace_id
    LEFT JOIN category_sides AS c ON c.cat = e.cat
    WHERE e.ph = 'X' AND e.duration_ns IS NOT NULL AND coalesce(c.side, 'cpu') = 'cpu'
),
own AS (
    SELECT h.trace_id, h.event_id, s.event_id AS span_id, s.iteration
    FROM host AS h
    JOIN schedule_spans AS s
        ON s.trace_id = h.trace_id AND s.pid = h.pid AND s.tid = h.tid AND h.start_ns >= s.start_ns
            AND h.start_ns < s.start_ns + s.duration_ns
    QUALIFY row_number() OVER (PARTITION BY h.trace_id, h.event_id ORDER BY s.start_ns DESC, s.event_id DESC) = 1
),
-- Backward operators, with the iteration of the task that ran their forward operators.
backward AS (
    SELECT h.trace_id, h.pid, h.tid, h.start_ns, max(o.iteration) AS iteration
    FROM backward_links AS b
    JOIN host AS h ON h.trace_id = b.trace_id AND h.event_id = b.backward_event_id
    LEFT JOIN own AS o ON o.trace_id = b.trace_id AND o.event_id = b.forward_event_id
    GROUP BY h.trace_id, h.pid, h.tid, h.start_ns
),
autograd_threads AS (
    SELECT DISTINCT trace_id, pid, tid FROM backward
),
linked AS (
    SELECT
        trace_id, pid, tid, start_ns, iteration,
        row_number() OVER (PARTITION BY trace_id, pid, tid ORDER BY start_ns, iteration) AS ordinal
    FROM backward
    WHERE iteration IS NOT NULL
),
-- Events of threads that run backward operators but no task, each after the linked backward operators that precede it.
steps AS (
    SELECT trace_id, pid, tid, start_ns, 0 AS turn, NULL AS event_id
    FROM linked
    UNION ALL
    SELECT h.trace_id, h.pid, h.tid, h.start_ns, 1 AS turn, h.event_id
    FROM host AS h
    JOIN autograd_threads AS b ON b.trace_id = h.trace_id AND b.pid = h.pid AND b.tid = h.tid
    LEFT JOIN own AS o ON o.trace_id = h.trace_id AND o.event_id = h.event_id
    WHERE o.event_id IS NULL
),
counted AS (
    SELECT
        trace_id, pid, tid, start_ns, event_id,
        count(CASE WHEN turn = 0 THEN 1 END) OVER (
            PARTITION BY trace_id, pid, tid ORDER BY start_ns, turn ROWS UNBOUNDED PRECEDING
        ) AS n_linked
    FROM steps
),
numbered AS (
    SELECT c.trace_id, c.pid, c.start_ns, c.event_id, l.iteration
    FROM counted AS c
    LEFT JOIN linked AS l
        ON l.trace_id = c.trace_id AND l.pid = c.pid AND l.tid = c.tid AND l.ordinal = c.n_linked
    WHERE c.event_id IS NOT NULL
),
-- The spans open at these events, after the operators and calls of the spans' threads.
reached AS (
    SELECT
        n.trace_id, s.pid, s.tid, n.start_ns, 1 AS turn, NULL AS end_ns, n.event_id, s.event_id AS span_id,
        s.start_ns AS span_start_ns, coalesce(s.iteration = n.iteration, FALSE) AS is_same_iteration
    FROM numbered AS n
    JOIN schedule_spans AS s
        ON s.trace_id = n.trace_id AND s.pid = n.pid AND n.start_ns >= s.start_ns
            AND n.start_ns < s.start_ns + s.duration_ns
    UNION ALL
    SELECT trace_id, pid, tid, start_ns, 0, end_ns, NULL, NULL, NULL, NULL
    FROM host
    WHERE is_work
),
candidates AS (
    SELECT
        trace_id, event_id, span_id, span_start_ns, is_same_iteration,
        max(end_ns) OVER (
            PARTITION BY trace_id, pid, tid ORDER BY start_ns, turn ROWS UNBOUNDED PRECEDING
        ) AS busy_until_ns
    FROM reached
),
caller AS (
    SELECT trace_id, event_id, span_id
    FROM candidates
    WHERE event_id IS NOT NULL
    QUALIFY
        row_number() OVER (
            PARTITION BY trace_id, event_id
            ORDER BY
                is_same_iteration DESC, greatest(coalesce(busy_until_ns, span_start_ns), span_start_ns), span_id
        ) = 1
),
owners AS (
    SELECT o.trace_id, o.event_id, s.task
    FROM own AS o
    JOIN schedule_spans AS s ON s.trace_id = o.trace_id AND s.event_id = o.span_id
    UNION ALL
    SELECT c.trace_id, c.event_id, s.task
    FROM caller AS c
    JOIN schedule_spans AS s ON s.trace_id = c.trace_id AND s.event_id = c.span_id
),
on_path AS (
    SELECT
        p.trace_id, o.task, sum(p.duration_ns) AS path_ns,
        sum(CASE WHEN k.event_id IS NULL THEN 0 ELSE p.duration_ns END) AS kernel_path_ns
    FROM critical_path AS p
    JOIN ran AS r ON r.trace_id = p.trace_id
    LEFT JOIN kernels AS k ON k.trace_id = p.trace_id AND k.event_id = p.attributed_event_id
    -- The CPU event that determines the task: the launch call of GPU work, else the event itself.
    LEFT JOIN owners AS o
        ON o.trace_id = p.trace_id AND o.event_id = coalesce(k.launch_event_id, p.attributed_event_id)
    WHERE p.window_id = 'full'
    GROUP BY p.trace_id, o.task
),
launched AS (
    SELECT k.trace_id, o.task, count(*) AS n_kernels, sum(k.duration_ns) AS kernel_ns
    FROM kernels AS k
    JOIN ran AS r ON r.trace_id = k.trace_id
    LEFT JOIN owners AS o ON o.trace_id = k.trace_id AND o.event_id = k.launch_event_id
    GROUP BY k.trace_id, o.task
),
slacks AS (
    SELECT x.trace_id, o.task, min(x.slack_ns) AS slack_ns
    FROM event_slack AS x
    JOIN ran AS r ON r.trace_id = x.trace_id
    LEFT JOIN kernels AS k ON k.trace_id = x.trace_id AND k.event_id = x.event_id
    LEFT JOIN owners AS o ON o.trace_id = x.trace_id AND o.event_id = coalesce(k.launch_event_id, x.event_id)
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
