-- One row: a change in the number of launches on a stream whose work has not started yet, in a profile.
-- How: a running sum per stream of +1 at each launch call and -1 at the start of its first GPU work on the stream. HTA
-- counts a launch once per GPU activity. At equal times, launches come first, then file order (HTA 2.7).
WITH any_call AS (
    SELECT DISTINCT p.trace_profile_id
    FROM call_roles AS r
    JOIN _profiles AS p ON p.profile = r.profile
    WHERE r.role = 'launch' AND r.name = '*'
),
launched AS (
    SELECT DISTINCT c.trace_profile_id, c.event_id AS launch_event_id, c.start_ns, c.correlation
    FROM _loaded_events AS c
    JOIN _links AS l ON l.trace_profile_id = c.trace_profile_id AND l.launch_event_id = c.event_id
    JOIN _loaded_events AS g ON g.trace_profile_id = l.trace_profile_id AND g.event_id = l.gpu_event_id
    LEFT JOIN any_call AS a ON a.trace_profile_id = c.trace_profile_id
    WHERE c.is_launch OR a.trace_profile_id IS NOT NULL AND g.side = 'gpu'
),
pairs AS (
    SELECT
        l.trace_profile_id, l.launch_event_id, l.start_ns AS launch_ts_ns, g.stream_key, min(g.start_ns) AS at_ns,
        arg_min(g.event_id, (g.start_ns, g.event_id)) AS event_id
    FROM launched AS l
    JOIN _profiles AS p ON p.trace_profile_id = l.trace_profile_id
    JOIN _loaded_events AS g ON g.trace_profile_id = l.trace_profile_id AND g.correlation = l.correlation
    WHERE g.stream_key IS NOT NULL AND (g.side = 'gpu' OR p.one_kernel_per_launch AND g.side = 'sync')
    GROUP BY
        l.trace_profile_id, l.launch_event_id, l.start_ns, g.stream_key,
        CASE WHEN p.one_kernel_per_launch THEN g.event_id END
),
changes AS (
    SELECT
        trace_profile_id, stream_key, launch_ts_ns AS at_ns, launch_event_id AS event_id, event_id AS order_id,
        1 AS change
    FROM pairs
    UNION ALL
    SELECT DISTINCT trace_profile_id, stream_key, at_ns, event_id, event_id, -1 FROM pairs
)
SELECT
    trace_profile_id,  -- The trace as a profile sees it.
    stream_key,  -- Stream as the profile sees it.
    event_id,  -- The launch call or the GPU work.
    at_ns,  -- Time of the change, ns.
    change,  -- +1 for a launch, -1 for the start of its first work.
    TRY_CAST(sum(change) OVER (
        PARTITION BY trace_profile_id, stream_key ORDER BY at_ns, change DESC, event_id, order_id
        ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS BIGINT) AS queue_length  -- Number of launches whose work has not started yet, after this change.
FROM changes
