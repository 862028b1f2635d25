-- One row: an event with a duration that takes part in a profile, with its side, thread, stream and call roles.
-- How: the side follows from the category (default) or from the stream argument (HTA 2.3). HTA then drops the last
-- profiler step and the work that the step launched (2.5).
WITH
-- One row: a trace whose last profiler step a profile drops, with the start of that step.
-- How: HTA drops the last of several profiler steps and the work that the step launched (2.5).
last_steps AS (
    SELECT
        p.trace_profile_id,  -- The trace as a profile sees it.
        p.trace_id,  -- The trace.
        max(e.start_ns) AS last_step_ns  -- Start of the last step, ns.
    FROM _profiles AS p
    JOIN events AS e ON e.trace_id = p.trace_id
    LEFT JOIN category_sides AS s ON s.cat = e.cat
    WHERE
        p.drop_last_step AND e.name LIKE 'ProfilerStep#%' AND regexp_matches(e.name, '^ProfilerStep#[0-9]+')
        AND e.duration_ns IS NOT NULL AND e.start_ns IS NOT NULL AND e.cat IS NOT NULL
        AND (coalesce(s.side, 'cpu') <> 'none' OR p.side_by_stream_argument AND e.cat <> 'Trace')
        AND NOT (p.side_by_stream_argument AND coalesce(e.stream, -1) >= 0 AND coalesce(e.correlation, -1) >= 0)
    GROUP BY p.trace_profile_id, p.trace_id
    HAVING count(DISTINCT e.name) >= 2
),
-- One row: a GPU activity that a profile drops because it was launched in the last profiler step.
dropped_work AS (
    SELECT
        l.trace_profile_id,  -- The trace as a profile sees it.
        l.gpu_event_id  -- The GPU work.
    FROM last_steps AS st
    JOIN _links AS l ON l.trace_profile_id = st.trace_profile_id
    JOIN events AS c ON c.trace_id = st.trace_id AND c.event_id = l.launch_event_id
    WHERE c.start_ns >= st.last_step_ns
),
-- HTA recognizes only calls without a suffix.
suffixed AS (
    SELECT
        profile, role,
        concat(
            name,
            unnest(CASE WHEN profile = 'hta' THEN [''] ELSE (SELECT list(s.suffix) FROM call_suffixes AS s) END)
        ) AS name
    FROM call_roles
),
roles AS (
    SELECT
        profile, name,
        bool_or(role = 'lock') AS is_lock, bool_or(role = 'blocking') AS is_blocking,
        bool_or(role = 'record') AS is_record, bool_or(role = 'wait') AS is_wait, bool_or(role = 'launch') AS is_launch,
        bool_or(role = 'polls') AS is_poll, bool_or(role = 'waits_for_device') AS waits_for_device,
        bool_or(role = 'waits_for_event') AS waits_for_event
    FROM suffixed
    GROUP BY profile, name
),
-- Calls that return when the copy that they launched has ended. A copy in a graph does not block the graph's launch.
copying AS (
    SELECT DISTINCT l.trace_profile_id, l.launch_event_id
    FROM _links AS l
    JOIN _profiles AS p ON p.trace_profile_id = l.trace_profile_id
    JOIN events AS e ON e.trace_id = p.trace_id AND e.event_id = l.gpu_event_id AND e.cat = 'gpu_memcpy'
    JOIN roles AS r ON r.profile = p.profile AND r.name = e.name AND r.is_blocking
    WHERE l.is_known AND coalesce(e.graph_node, 0) = 0 AND coalesce(e.graph_id, 0) = 0
),
-- Calls that become part of a graph instead of recording an event or making a stream wait.
captured AS (
    SELECT p.trace_profile_id, e.event_id
    FROM events AS e
    JOIN _profiles AS p ON p.trace_id = e.trace_id AND p.infer_waits
    JOIN roles AS r ON r.profile = p.profile AND r.name = e.name AND (r.is_record OR r.is_wait)
    ASOF JOIN _graph_captures AS g
        ON g.trace_id = e.trace_id AND g.pid = e.pid AND g.tid = e.tid AND g.begun_ns <= e.start_ns
    WHERE e.start_ns < g.stop_ns
),
-- Waits on XPU inside a blocking call. The call represents both.
waiting AS (
    SELECT e.trace_id, e.event_id
    FROM events AS e
    ASOF JOIN events AS c
        ON c.trace_id = e.trace_id AND c.pid = e.pid AND c.tid = e.tid AND c.start_ns <= e.start_ns
            AND c.cat = 'xpu_runtime'
    WHERE
        e.cat = 'xpu_sync' AND c.end_ns >= e.end_ns
        AND c.name IN (SELECT r.name FROM roles AS r WHERE r.profile = 'default' AND r.is_blocking)
),
sided AS (
    SELECT
        p.trace_profile_id, p.stream_by_device, p.steps_name_forward_thread, p.profile, e.trace_id, e.event_id, e.cat,
        e.name, e.pid, e.tid, e.start_ns, e.duration_ns,
        e.correlation, e.wait_on_stream, e.wait_on_cuda_event_record_corr_id, e.device AS device_argument, e.stream,
        CASE
            WHEN NOT p.side_by_stream_argument THEN coalesce(s.side, 'cpu')
            WHEN coalesce(e.stream, -1) <> -1 THEN CASE WHEN e.cat = 'cuda_sync' THEN 'sync' ELSE 'gpu' END
            ELSE 'cpu'
        END AS side,
        coalesce(
            (s.is_operator OR p.covers_window AND e.cat = 'user_annotation' AND starts_with(e.name, 'gloo:'))
            AND s.side = 'cpu', FALSE
        )
        -- A barrier is on the thread that appended it, but its times are GPU times. HTA does not know the category.
        AND NOT (
            e.cat = 'xpu_sync'
            AND (p.side_by_stream_argument OR contains(coalesce(e.name, ''), 'Append') OR w.event_id IS NOT NULL)
        )
        -- PyTorch wrote its own annotations as operators until 2021. Hand-offs between threads occur inside them.
        AND NOT (
            p.covers_window AND e.cat = 'cpu_op' AND regexp_matches(
                coalesce(e.name, ''), '^(ProfilerStep|Optimizer\.step|Optimizer\.zero_grad|enumerate\(DataLoader\))#'
            )
        ) AS is_operator,
        p.side_by_stream_argument AND (
            coalesce(e.stream, -1) >= 0 AND coalesce(e.correlation, -1) >= 0 OR e.name IN ('Event Sync', 'Context Sync')
        ) AS is_correlated_gpu
    FROM events AS e
    JOIN _profiles AS p ON p.trace_id = e.trace_id
    LEFT JOIN category_sides AS s ON s.cat = e.cat
    LEFT JOIN waiting AS w ON w.trace_id = e.trace_id AND w.event_id = e.event_id
    WHERE
        e.duration_ns IS NOT NULL AND e.start_ns IS NOT NULL AND e.cat IS NOT NULL
        AND (coalesce(s.side, 'cpu') <> 'none' OR p.side_by_stream_argument AND e.cat <> 'Trace')
),
placed AS (
    SELECT
        e.*, t.thread_id, s.stream_id, coalesce(e.device_argument, TRY_CAST(e.pid AS BIGINT), 0) AS device
    FROM sided AS e
    JOIN threads AS t
        ON t.trace_id = e.trace_id AND t.pid IS NOT DISTINCT FROM e.pid AND t.tid IS NOT DISTINCT FROM e.tid
    LEFT JOIN streams AS s
        ON s.trace_id = e.trace_id AND s.device = coalesce(e.device_argument, TRY_CAST(e.pid AS BIGINT), 0)
            AND s.stream IS NOT DISTINCT FROM e.stream
    -- GPU work needs neither pid nor tid: a copy on AMD may have no queue, and so no tid.
    WHERE e.pid IS NOT NULL AND e.tid IS NOT NULL OR e.side IN ('gpu', 'sync')
)
SELECT
    e.trace_profile_id,  -- The trace as a profile sees it.
    e.event_id,  -- Position in traceEvents.
    e.thread_id,  -- Number of its thread in threads.
    e.start_ns,  -- Start, ns.
    e.duration_ns,  -- Duration, ns.
    e.side,  -- cpu, gpu, sync or annotation.
    e.is_operator,  -- A CPU event that is a node of the graph.
    -- Kind of wait of a cuda_sync row; NULL for other events.
    CASE WHEN e.cat = 'cuda_sync' THEN e.name END AS sync_kind,
    e.device,  -- Device of GPU work.
    -- The stream as the profile sees it, which orders GPU work.
    CASE
        WHEN NOT e.stream_by_device THEN e.stream
        WHEN e.stream IS NOT NULL OR e.side = 'gpu' THEN e.stream_id
    END AS stream_key,
    e.correlation,  -- Correlation id.
    e.wait_on_stream,  -- Stream on which the awaited event was recorded.
    e.wait_on_cuda_event_record_corr_id,  -- Correlation id of the call that recorded the awaited event.
    -- HTA's data frame has GPU rows first once the last step is dropped.
    st.last_step_ns IS NOT NULL AND e.is_correlated_gpu AS sorts_first,
    -- The event marks its thread as the forward thread.
    e.cat IN ('cpu_op', 'user_annotation')
    AND (
        contains(e.name, 'forward') OR e.steps_name_forward_thread AND starts_with(e.name, 'ProfilerStep#')
    ) AS is_forward,
    -- The event marks its thread as the backward thread.
    e.cat IN ('cpu_op', 'user_annotation') AND contains(e.name, 'autograd') AS is_backward,
    e.cat = 'python_function' AS is_frame,  -- A Python function.
    coalesce(r.is_lock AND e.is_operator, FALSE) AS is_lock,  -- Takes the runtime lock.
    (c.launch_event_id IS NOT NULL OR coalesce(r.is_blocking, FALSE)) AND e.is_operator
        AS is_blocking,  -- Waits for the GPU.
    coalesce(r.is_poll AND e.is_operator, FALSE) AS is_poll,  -- The call queries whether GPU work has ended.
    coalesce(r.waits_for_device AND e.is_operator, FALSE) AS waits_for_device,  -- Waits for all streams.
    coalesce(r.waits_for_event AND e.is_operator, FALSE) AS waits_for_event,  -- Waits for a recorded event.
    -- The call's name is that of a record or a wait, but the call became part of a graph (only in profiles that infer
    -- waits).
    g.event_id IS NOT NULL AS is_captured,
    coalesce(r.is_record AND e.is_operator, FALSE) AND g.event_id IS NULL AS is_record,  -- Records an event.
    coalesce(r.is_wait AND e.is_operator, FALSE) AND g.event_id IS NULL AS is_wait,  -- Makes a stream wait.
    coalesce(r.is_launch AND e.is_operator, FALSE) AS is_launch  -- Launches GPU work, according to its name.
FROM placed AS e
LEFT JOIN roles AS r ON r.profile = e.profile AND r.name = e.name
LEFT JOIN copying AS c ON c.trace_profile_id = e.trace_profile_id AND c.launch_event_id = e.event_id
LEFT JOIN captured AS g ON g.trace_profile_id = e.trace_profile_id AND g.event_id = e.event_id
LEFT JOIN last_steps AS st ON st.trace_profile_id = e.trace_profile_id
LEFT JOIN dropped_work AS d ON d.trace_profile_id = e.trace_profile_id AND d.gpu_event_id = e.event_id
WHERE
    d.gpu_event_id IS NULL
    AND (st.last_step_ns IS NULL OR e.is_correlated_gpu OR e.start_ns < st.last_step_ns)
