-- One row: an event that takes part in the critical path of a window.
-- How: CPU events that start in the window, and GPU work and waits whose launch starts in it. If the path covers the
-- window, also annotations and Python functions that own host time outside operators. They run on working threads and
-- overlap the window. Functions are at least 10 us long.
-- Time is cut into parts longer than a window, so that the cost per window does not grow with the number of windows. A
-- window overlaps at most two parts, and an event is compared only with the windows in its own part. Windows that begin
-- inside an annotation are searched the same way, with parts longer than the annotation.
WITH windows AS (
    SELECT
        w.window_no, w.trace_profile_id, w.annotation, w.start_ns, w.end_ns, p.keep_zero_duration,
        p.one_kernel_per_launch, p.exit_pops_top, p.covers_window,
        CAST(pow(2, ceil(ln(greatest(w.end_ns - w.start_ns, 1)) / ln(2)) + 1) AS BIGINT) AS part_ns
    FROM _asked_windows AS w
    JOIN _profiles AS p ON p.trace_profile_id = w.trace_profile_id
),
parts AS (
    SELECT *, start_ns // part_ns AS part FROM windows
    UNION ALL
    SELECT *, end_ns // part_ns AS part FROM windows WHERE end_ns // part_ns > start_ns // part_ns
),
part_lengths AS (
    SELECT DISTINCT trace_profile_id, part_ns FROM windows
),
launches AS (
    SELECT l.trace_profile_id, l.gpu_event_id, l.launch_event_id, c.start_ns, c.duration_ns
    FROM _links AS l
    JOIN _loaded_events AS c ON c.trace_profile_id = l.trace_profile_id AND c.event_id = l.launch_event_id
    WHERE l.is_known AND c.side = 'cpu'
),
gpu AS (
    SELECT
        e.*, l.launch_event_id, l.start_ns AS launch_ts_ns, l.duration_ns AS launch_ns,
        coalesce(l.start_ns, e.start_ns) AS at_ns
    FROM _loaded_events AS e
    LEFT JOIN launches AS l ON l.trace_profile_id = e.trace_profile_id AND l.gpu_event_id = e.event_id
    WHERE e.side IN ('gpu', 'sync') OR e.sync_kind IS NOT NULL
),
-- Annotations and Python functions that may own host time.
lasting AS (
    SELECT
        e.trace_profile_id, e.event_id, e.start_ns, e.start_ns + e.duration_ns AS end_ns,
        CAST(pow(2, ceil(ln(greatest(e.duration_ns, 1)) / ln(2)) + 1) AS BIGINT) AS part_ns
    FROM _loaded_events AS e
    JOIN _profiles AS p ON p.trace_profile_id = e.trace_profile_id
    WHERE
        p.covers_window AND e.side = 'cpu' AND NOT e.is_operator
        AND e.duration_ns >= CASE WHEN e.is_frame THEN threshold('frame_ns') ELSE 1 END
),
lasting_parts AS (
    SELECT *, start_ns // part_ns AS part FROM lasting
    UNION ALL
    SELECT *, end_ns // part_ns AS part FROM lasting WHERE end_ns // part_ns > start_ns // part_ns
),
lasting_lengths AS (
    SELECT DISTINCT trace_profile_id, part_ns FROM lasting
),
-- The part is a separate column, because DuckDB would otherwise compare an event with all windows of its trace first.
host_parts AS (
    SELECT e.trace_profile_id, e.event_id, e.start_ns, l.part_ns, e.start_ns // l.part_ns AS part
    FROM _loaded_events AS e
    JOIN part_lengths AS l ON l.trace_profile_id = e.trace_profile_id
    WHERE e.side = 'cpu'
),
gpu_parts AS (
    SELECT e.*, l.part_ns, e.at_ns // l.part_ns AS part
    FROM gpu AS e
    JOIN part_lengths AS l ON l.trace_profile_id = e.trace_profile_id
),
window_parts AS (
    SELECT w.window_no, w.trace_profile_id, w.start_ns, l.part_ns, w.start_ns // l.part_ns AS part
    FROM windows AS w
    JOIN lasting_lengths AS l ON l.trace_profile_id = w.trace_profile_id
),
-- Host events by window: events that start in it, and annotations and functions that began earlier and reach into it.
placed AS (
    SELECT w.window_no, e.trace_profile_id, e.event_id
    FROM host_parts AS e
    JOIN parts AS w ON w.trace_profile_id = e.trace_profile_id AND w.part_ns = e.part_ns AND w.part = e.part
    WHERE e.start_ns BETWEEN w.start_ns AND w.end_ns
    UNION ALL
    SELECT w.window_no, e.trace_profile_id, e.event_id
    FROM window_parts AS w
    JOIN lasting_parts AS e ON e.trace_profile_id = w.trace_profile_id AND e.part_ns = w.part_ns AND e.part = w.part
    WHERE e.start_ns < w.start_ns AND e.end_ns >= w.start_ns
)
SELECT
    w.window_no,  -- The window.
    e.event_id,  -- The event.
    e.thread_id,  -- Thread.
    e.start_ns,  -- Start, ns.
    e.duration_ns,  -- Duration, ns.
    'cpu' AS side,  -- cpu, gpu or sync.
    e.is_operator,  -- A CPU event that is a node of the graph.
    e.is_lock,  -- Takes the runtime lock.
    e.is_blocking,  -- Waits for the GPU.
    e.is_forward,  -- The event marks its thread as the forward thread.
    e.is_backward,  -- The event marks its thread as the backward thread.
    CAST(NULL AS VARCHAR) AS sync_kind,  -- Kind of wait of a cuda_sync row.
    e.device,  -- Device.
    e.stream_key,  -- Stream as the profile sees it.
    CAST(NULL AS BIGINT) AS launch_event_id,  -- The call that launched it.
    CAST(NULL AS BIGINT) AS launch_ts_ns,  -- Start of that call, ns.
    FALSE AS launch_in_window  -- The launch call is a node of this window.
FROM placed AS l
JOIN windows AS w ON w.window_no = l.window_no
JOIN _loaded_events AS e ON e.trace_profile_id = l.trace_profile_id AND e.event_id = l.event_id
LEFT JOIN _thread_roles AS r ON r.trace_profile_id = e.trace_profile_id AND r.thread_id = e.thread_id
WHERE
    e.start_ns BETWEEN w.start_ns AND w.end_ns AND (e.duration_ns > 0 OR w.keep_zero_duration AND e.duration_ns = 0)
    -- Other events matter only if the end of an operator may close them.
    AND (e.is_operator OR NOT w.covers_window AND (e.is_forward OR e.is_backward) OR w.exit_pops_top)
    OR w.covers_window AND NOT e.is_operator
    AND (
        r.is_working
        -- The annotation that opens the window, on any thread.
        OR w.annotation <> '' AND NOT e.is_frame
        AND (e.start_ns = w.start_ns OR e.start_ns + e.duration_ns = w.end_ns)
    )
    AND e.duration_ns >= CASE WHEN e.is_frame THEN threshold('frame_ns') ELSE 1 END
    AND e.start_ns <= w.end_ns AND e.start_ns + e.duration_ns >= w.start_ns
UNION ALL
SELECT
    w.window_no, e.event_id, e.thread_id, e.start_ns, e.duration_ns,
    CASE WHEN e.sync_kind IS NULL THEN 'gpu' ELSE 'sync' END, FALSE, FALSE, FALSE, FALSE, FALSE, e.sync_kind, e.device,
    e.stream_key, e.launch_event_id, e.launch_ts_ns,
    coalesce(e.launch_ns > 0 OR w.keep_zero_duration AND e.launch_ns = 0, FALSE)
FROM gpu_parts AS e
JOIN parts AS w ON w.trace_profile_id = e.trace_profile_id AND w.part_ns = e.part_ns AND w.part = e.part
WHERE
    e.at_ns BETWEEN w.start_ns AND w.end_ns
    AND CASE
        -- A launch call of negative duration is not in the graph. In a path that covers the window, its work still is.
        WHEN e.launch_event_id IS NOT NULL
            THEN e.launch_ns > 0 OR w.keep_zero_duration AND e.launch_ns = 0 OR w.covers_window AND e.side = 'gpu'
        ELSE NOT w.one_kernel_per_launch AND e.side = 'gpu'
    END
    -- A path that covers the window never goes back in time, so work of negative duration is excluded.
    AND (e.duration_ns >= 0 OR NOT w.covers_window)
    -- HTA treats a wait without a stream as a CPU row, which needs a duration and a start in the window.
    AND (
        NOT w.one_kernel_per_launch OR e.side <> 'cpu'
        OR (e.duration_ns > 0 AND e.start_ns BETWEEN w.start_ns AND w.end_ns)
    )
