-- One row: an event that takes part in the critical path of a window.
-- How: CPU events that start in the window; GPU work and waits whose launch starts in it; stream waits always (HTA 2.8.2).
WITH links AS (
    SELECT l.trace_id, l.profile, l.gpu_event_id, l.launch_event_id
    FROM _links AS l
    JOIN _profiles AS p ON p.trace_id = l.trace_id AND p.profile = l.profile
    WHERE l.is_last OR NOT p.one_kernel_per_launch
),
launches AS (
    SELECT l.trace_id, l.profile, l.gpu_event_id, l.launch_event_id, c.ts_ns, c.dur_ns
    FROM links AS l
    JOIN _loaded_events AS c ON c.trace_id = l.trace_id AND c.profile = l.profile AND c.event_id = l.launch_event_id
    WHERE c.side = 'cpu'
),
gpu_side AS (
    SELECT * FROM _loaded_events WHERE side IN ('gpu', 'sync') OR is_sync
),
cpu AS (
    SELECT w.window_id, e.*
    FROM critical_path_windows AS w
    JOIN _profiles AS p ON p.trace_id = w.trace_id AND p.profile = w.profile
    JOIN _loaded_events AS e ON e.trace_id = w.trace_id AND e.profile = w.profile
    WHERE e.side = 'cpu' AND e.ts_ns BETWEEN w.start_ns AND w.end_ns AND (e.dur_ns > 0 OR p.keep_zero_duration AND e.dur_ns = 0)
),
gpu AS (
    SELECT
        w.window_id, e.*, l.launch_event_id, l.ts_ns AS launch_ts_ns,
        l.dur_ns > 0 OR p.keep_zero_duration AND l.dur_ns = 0 AS launch_has_time,
        l.ts_ns BETWEEN w.start_ns AND w.end_ns AS launch_in_window,
        NOT p.one_kernel_per_launch AND e.side = 'gpu' AND l.launch_event_id IS NULL
        AND e.ts_ns BETWEEN w.start_ns AND w.end_ns AS is_unlaunched_in_window
    FROM critical_path_windows AS w
    JOIN _profiles AS p ON p.trace_id = w.trace_id AND p.profile = w.profile
    JOIN gpu_side AS e ON e.trace_id = w.trace_id AND e.profile = w.profile
    LEFT JOIN launches AS l ON l.trace_id = e.trace_id AND l.profile = e.profile AND l.gpu_event_id = e.event_id
)
SELECT
    trace_id,  -- The trace.
    window_id,  -- The window.
    profile,  -- hta or default.
    event_id,  -- The event.
    cat,  -- Canonical category.
    name,  -- Name.
    thread_id,  -- Thread.
    tid,  -- Thread id as text.
    ts_ns,  -- Start, ns.
    end_ns,  -- End, ns.
    'cpu' AS side,  -- cpu, gpu or sync.
    is_operator,  -- A CPU event that is a node.
    is_lock,  -- Takes the runtime lock.
    is_blocking,  -- Waits for the GPU.
    device,  -- Device.
    stream_key,  -- Stream as the profile sees it.
    CAST(NULL AS BIGINT) AS launch_event_id,  -- The call that launched it.
    CAST(NULL AS BIGINT) AS launch_ts_ns,  -- Start of that call, ns.
    FALSE AS launch_in_window  -- That call is a node of this window.
FROM cpu
UNION ALL
SELECT
    trace_id, window_id, profile, event_id, cat, name, thread_id, tid, ts_ns, end_ns,
    CASE WHEN is_sync THEN 'sync' ELSE 'gpu' END,
    FALSE, FALSE, FALSE, device, stream_key, launch_event_id, launch_ts_ns, launch_in_window AND launch_has_time
FROM gpu
WHERE
    launch_in_window AND launch_has_time
    OR is_sync AND name = 'Stream Wait Event' AND launch_event_id IS NOT NULL
    OR is_unlaunched_in_window
