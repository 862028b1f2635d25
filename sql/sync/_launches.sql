-- One row: a call that started GPU work on a stream, in a profile, with its first and last piece of work there.
-- How: links grouped by call and stream; HTA recognizes launches by name, with one kernel each (2.7, 2.8.8).
WITH any_call AS (
    SELECT DISTINCT p.trace_profile_id
    FROM call_roles AS r
    JOIN _profiles AS p ON p.profile = r.profile
    WHERE r.role = 'launch' AND r.name = '*'
),
work AS (
    SELECT
        c.trace_profile_id, c.event_id AS launch_event_id, c.thread_id, c.start_ns, g.device, g.stream_key,
        g.event_id AS gpu_event_id, g.start_ns AS gpu_ts_ns, g.start_ns + g.duration_ns AS gpu_end_ns
    FROM _links AS l
    JOIN _loaded_events AS c ON c.trace_profile_id = l.trace_profile_id AND c.event_id = l.launch_event_id
    JOIN _loaded_events AS g ON g.trace_profile_id = l.trace_profile_id AND g.event_id = l.gpu_event_id
    LEFT JOIN any_call AS a ON a.trace_profile_id = l.trace_profile_id
    WHERE
        g.stream_key IS NOT NULL AND l.is_known
        AND (c.is_launch OR a.trace_profile_id IS NOT NULL AND g.side = 'gpu')
),
bounds AS (
    SELECT
        trace_profile_id, launch_event_id, stream_key, min(gpu_ts_ns) AS first_start_ns, max(gpu_end_ns) AS last_end_ns
    FROM work
    GROUP BY trace_profile_id, launch_event_id, stream_key
)
SELECT
    w.trace_profile_id,  -- The trace as a profile sees it.
    w.launch_event_id,  -- The call.
    w.thread_id,  -- Its thread.
    w.start_ns,  -- Its start, ns.
    w.device,  -- Device the work ran on.
    w.stream_key,  -- Stream as the profile sees it.
    -- First work on the stream.
    min(CASE WHEN w.gpu_ts_ns = b.first_start_ns THEN w.gpu_event_id END) AS first_gpu_event_id,
    -- Last work on the stream.
    max(CASE WHEN w.gpu_end_ns = b.last_end_ns THEN w.gpu_event_id END) AS last_gpu_event_id
FROM work AS w
JOIN bounds AS b
    ON b.trace_profile_id = w.trace_profile_id AND b.launch_event_id = w.launch_event_id
        AND b.stream_key = w.stream_key
GROUP BY w.trace_profile_id, w.launch_event_id, w.thread_id, w.start_ns, w.device, w.stream_key
