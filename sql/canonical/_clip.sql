-- One row: an event that takes part in the critical path of a window.
-- How: CPU events that start in the window; GPU work and waits whose launch starts in it; stream waits always (HTA
-- 2.8.2). Where the path covers the window, also the annotations and Python functions that own host time outside
-- operators: of threads that work, those of at least 10 us that run in the window at some time.
WITH windows AS (
    SELECT
        w.window_no, w.trace_profile_id, w.annotation, w.start_ns, w.end_ns, p.keep_zero_duration,
        p.one_kernel_per_launch, p.exit_pops_top, p.covers_window
    FROM _asked_windows AS w
    JOIN _profiles AS p ON p.trace_profile_id = w.trace_profile_id
),
launches AS (
    SELECT l.trace_profile_id, l.gpu_event_id, l.launch_event_id, c.start_ns, c.duration_ns
    FROM _links AS l
    JOIN _loaded_events AS c ON c.trace_profile_id = l.trace_profile_id AND c.event_id = l.launch_event_id
    WHERE l.is_known AND c.side = 'cpu'
),
gpu AS (
    SELECT
        w.window_no, w.covers_window, e.*, l.launch_event_id, l.start_ns AS launch_ts_ns,
        coalesce(
            l.start_ns BETWEEN w.start_ns AND w.end_ns
            AND (l.duration_ns > 0 OR w.keep_zero_duration AND l.duration_ns = 0),
            FALSE
        ) AS launch_in_window,
        NOT w.one_kernel_per_launch AND e.side = 'gpu' AND l.launch_event_id IS NULL
        AND e.start_ns BETWEEN w.start_ns AND w.end_ns AS is_unlaunched_in_window
    FROM windows AS w
    JOIN _loaded_events AS e
        ON e.trace_profile_id = w.trace_profile_id AND (e.side IN ('gpu', 'sync') OR e.sync_kind IS NOT NULL)
    LEFT JOIN launches AS l ON l.trace_profile_id = e.trace_profile_id AND l.gpu_event_id = e.event_id
)
SELECT
    w.window_no,  -- The window.
    e.event_id,  -- The event.
    e.thread_id,  -- Thread.
    e.start_ns,  -- Start, ns.
    e.duration_ns,  -- Duration, ns.
    'cpu' AS side,  -- cpu, gpu or sync.
    e.is_operator,  -- A CPU event that is a node.
    e.is_lock,  -- Takes the runtime lock.
    e.is_blocking,  -- Waits for the GPU.
    e.is_forward,  -- Names its thread the forward thread.
    e.is_backward,  -- Names its thread the backward thread.
    CAST(NULL AS VARCHAR) AS sync_kind,  -- Kind of wait of a cuda_sync row.
    e.device,  -- Device.
    e.stream_key,  -- Stream as the profile sees it.
    CAST(NULL AS BIGINT) AS launch_event_id,  -- The call that launched it.
    CAST(NULL AS BIGINT) AS launch_ts_ns,  -- Start of that call, ns.
    FALSE AS launch_in_window  -- That call is a node of this window.
FROM windows AS w
JOIN _loaded_events AS e ON e.trace_profile_id = w.trace_profile_id
LEFT JOIN _thread_roles AS r ON r.trace_profile_id = e.trace_profile_id AND r.thread_id = e.thread_id
WHERE
    e.side = 'cpu' AND (
        e.start_ns BETWEEN w.start_ns AND w.end_ns AND (e.duration_ns > 0 OR w.keep_zero_duration AND e.duration_ns = 0)
        -- Other events matter only where the end of an operator may close them.
        AND (e.is_operator OR NOT w.covers_window AND (e.is_forward OR e.is_backward) OR w.exit_pops_top)
        OR w.covers_window AND NOT e.is_operator
        AND (
            r.is_working
            -- The annotation that opens the window, on whatever thread.
            OR w.annotation <> '' AND NOT e.is_frame
            AND (e.start_ns = w.start_ns OR e.start_ns + e.duration_ns = w.end_ns)
        )
        AND e.duration_ns >= CASE WHEN e.is_frame THEN 10000 ELSE 1 END
        AND e.start_ns <= w.end_ns AND e.start_ns + e.duration_ns >= w.start_ns
    )
UNION ALL
SELECT
    window_no, event_id, thread_id, start_ns, duration_ns, CASE WHEN sync_kind IS NULL THEN 'gpu' ELSE 'sync' END,
    FALSE, FALSE, FALSE, FALSE, FALSE, sync_kind, device, stream_key, launch_event_id, launch_ts_ns, launch_in_window
FROM gpu
WHERE
    (
        launch_in_window
        OR sync_kind = 'Stream Wait Event' AND launch_event_id IS NOT NULL
        OR is_unlaunched_in_window
    )
    -- Where time never goes back, work of negative duration is none.
    AND (duration_ns >= 0 OR NOT covers_window)
