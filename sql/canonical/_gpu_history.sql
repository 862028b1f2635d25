-- One row: a GPU activity in a scope, with the time until which earlier work kept its stream busy.
-- How: the scope is the range in which earlier work on the stream counts. It is the whole trace (scope_no is minus its
-- trace_profile_id) or, in HTA, only the window (scope_no is its window_no).
WITH scopes AS (
    SELECT DISTINCT
        CASE WHEN p.whole_trace_history THEN -w.trace_profile_id ELSE w.window_no END AS scope_no,
        w.trace_profile_id, CASE WHEN NOT p.whole_trace_history THEN w.window_no END AS window_no
    FROM _asked_windows AS w
    JOIN _profiles AS p ON p.trace_profile_id = w.trace_profile_id
),
all_work AS (
    SELECT
        s.scope_no, s.trace_profile_id, e.event_id, e.device, e.stream_key, e.start_ns,
        e.start_ns + e.duration_ns AS end_ns,
        l.launch_event_id, c.start_ns AS launch_ts_ns
    FROM scopes AS s
    JOIN _loaded_events AS e ON e.trace_profile_id = s.trace_profile_id AND e.side = 'gpu'
    LEFT JOIN _links AS l ON l.trace_profile_id = e.trace_profile_id AND l.gpu_event_id = e.event_id
    LEFT JOIN _loaded_events AS c ON c.trace_profile_id = l.trace_profile_id AND c.event_id = l.launch_event_id
    WHERE s.window_no IS NULL
    UNION ALL
    SELECT
        s.scope_no, s.trace_profile_id, c.event_id, c.device, c.stream_key, c.start_ns, c.start_ns + c.duration_ns,
        c.launch_event_id, c.launch_ts_ns
    FROM scopes AS s
    JOIN _clip AS c ON c.window_no = s.window_no
    WHERE c.side = 'gpu'
)
SELECT
    scope_no,  -- The scope.
    trace_profile_id,  -- The trace as a profile sees it.
    event_id,  -- The GPU work.
    device,  -- Its device.
    stream_key,  -- Its stream as the profile sees it.
    start_ns,  -- Its start, ns.
    end_ns,  -- Its end, ns.
    launch_event_id,  -- The CPU call that launched it; NULL if the call is not in the trace.
    launch_ts_ns,  -- Start of that call, ns.
    max(end_ns) OVER (
        PARTITION BY scope_no, stream_key ORDER BY start_ns, event_id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ) AS busy_until_ns  -- Latest end of earlier work on the stream, ns; NULL for the first activity.
FROM all_work
