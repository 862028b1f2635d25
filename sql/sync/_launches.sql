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
        c.trace_profile_id, c.event_id AS launch_event_id, c.thread_id, c.ts_ns, g.device, g.stream_key,
        g.event_id AS gpu_event_id, g.ts_ns AS gpu_ts_ns, g.ts_ns + g.dur_ns AS gpu_end_ns
    FROM _links AS l
    JOIN _loaded_events AS c ON c.trace_profile_id = l.trace_profile_id AND c.event_id = l.launch_event_id
    JOIN _loaded_events AS g ON g.trace_profile_id = l.trace_profile_id AND g.event_id = l.gpu_event_id
    LEFT JOIN any_call AS a ON a.trace_profile_id = l.trace_profile_id
    WHERE
        g.stream_key IS NOT NULL AND l.is_known
        AND (c.is_launch OR a.trace_profile_id IS NOT NULL AND g.side = 'gpu')
),
placed AS (
    SELECT
        *,
        row_number() OVER (
            PARTITION BY trace_profile_id, launch_event_id, stream_key ORDER BY gpu_ts_ns, gpu_event_id
        ) AS nth,
        row_number() OVER (
            PARTITION BY trace_profile_id, launch_event_id, stream_key ORDER BY gpu_end_ns DESC, gpu_event_id DESC
        ) AS nth_from_last
    FROM work
)
SELECT
    trace_profile_id,  -- The trace as a profile sees it.
    launch_event_id,  -- The call.
    thread_id,  -- Its thread.
    ts_ns,  -- Its start, ns.
    device,  -- Device the work ran on.
    stream_key,  -- Stream as the profile sees it.
    max(CASE WHEN nth = 1 THEN gpu_event_id END) AS first_gpu_event_id,  -- First work on the stream.
    max(CASE WHEN nth_from_last = 1 THEN gpu_event_id END) AS last_gpu_event_id  -- Last work on the stream.
FROM placed
GROUP BY trace_profile_id, launch_event_id, thread_id, ts_ns, device, stream_key
