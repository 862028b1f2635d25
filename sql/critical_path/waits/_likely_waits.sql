-- One row: a blocking call and GPU work that it may have waited for, if no cuda_sync row shows the wait.
-- How: by the order of calls on a thread, together with the autograd engine's threads that work for it. A blocking call
-- waits for the work launched last. A call for an event waits for the work launched last before the event recorded
-- last. A call for the whole device waits for the work launched last on every stream of its process. A copying call
-- waits for its own copy. The times decide whether a call did wait, because an edge only states what could not have
-- happened earlier.
WITH inferring AS (
    SELECT trace_profile_id FROM _profiles WHERE infer_waits AND covers_window
),
launches AS (
    SELECT
        h.trace_profile_id, h.launch_event_id, min(h.event_id) AS first_event_id, max(h.event_id) AS last_event_id
    FROM _gpu_history AS h
    JOIN inferring AS i ON i.trace_profile_id = h.trace_profile_id
    WHERE h.launch_event_id IS NOT NULL
    GROUP BY h.trace_profile_id, h.launch_event_id
),
-- The work of each launch that ends last. Few launches have more than one GPU activity.
launched AS (
    SELECT trace_profile_id, launch_event_id, last_event_id
    FROM launches
    WHERE first_event_id = last_event_id
    UNION ALL
    SELECT h.trace_profile_id, h.launch_event_id, h.event_id
    FROM _gpu_history AS h
    JOIN launches AS l ON l.trace_profile_id = h.trace_profile_id AND l.launch_event_id = h.launch_event_id
    WHERE l.first_event_id <> l.last_event_id
    QUALIFY
        row_number() OVER (
            PARTITION BY h.trace_profile_id, h.launch_event_id ORDER BY h.end_ns DESC, h.event_id DESC
        ) = 1
),
calls AS (
    SELECT
        e.trace_profile_id, e.event_id, e.start_ns, l.last_event_id, o.process_no, o.order_thread_id AS thread_id,
        e.is_record,
        e.is_blocking AND NOT e.is_poll AND l.launch_event_id IS NULL AND s.call_event_id IS NULL AS is_blocking,
        e.waits_for_device, e.waits_for_event, e.is_blocking AND l.launch_event_id IS NOT NULL AS is_copying
    FROM _loaded_events AS e
    JOIN inferring AS i ON i.trace_profile_id = e.trace_profile_id
    JOIN _thread_roles AS o ON o.trace_profile_id = e.trace_profile_id AND o.thread_id = e.thread_id
    LEFT JOIN launched AS l ON l.trace_profile_id = e.trace_profile_id AND l.launch_event_id = e.event_id
    LEFT JOIN _shown_calls AS s ON s.trace_profile_id = e.trace_profile_id AND s.call_event_id = e.event_id
    WHERE e.is_operator AND (l.launch_event_id IS NOT NULL OR e.is_record OR e.is_blocking)
),
numbered AS (
    SELECT
        *, row_number() OVER (PARTITION BY trace_profile_id, thread_id ORDER BY start_ns, event_id) AS ordinal
    FROM calls
),
thread_launches AS (
    SELECT trace_profile_id, thread_id, ordinal, last_event_id FROM numbered WHERE last_event_id IS NOT NULL
),
-- The last launch of the thread before each call.
launching AS (
    SELECT n.*, l.last_event_id AS launched_event_id
    FROM numbered AS n
    ASOF LEFT JOIN thread_launches AS l
        ON l.trace_profile_id = n.trace_profile_id AND l.thread_id = n.thread_id AND l.ordinal <= n.ordinal
),
records AS (
    SELECT trace_profile_id, thread_id, ordinal, launched_event_id
    FROM launching
    WHERE is_record AND launched_event_id IS NOT NULL
),
recording AS (
    SELECT c.*, r.launched_event_id AS recorded_event_id
    FROM launching AS c
    ASOF LEFT JOIN records AS r
        ON r.trace_profile_id = c.trace_profile_id AND r.thread_id = c.thread_id AND r.ordinal <= c.ordinal
),
device_syncs AS (
    SELECT trace_profile_id, event_id, start_ns, process_no
    FROM calls
    WHERE is_blocking AND waits_for_device
),
stream_list AS (
    SELECT DISTINCT h.trace_profile_id, h.stream_key, c.process_no
    FROM _gpu_history AS h
    JOIN inferring AS i ON i.trace_profile_id = h.trace_profile_id
    JOIN calls AS c ON c.trace_profile_id = h.trace_profile_id AND c.event_id = h.launch_event_id
),
on_streams AS (
    SELECT
        trace_profile_id, stream_key, event_id, is_sync,
        count(CASE WHEN NOT is_sync THEN 1 END) OVER (
            PARTITION BY trace_profile_id, stream_key ORDER BY at_ns, start_ns, event_id
            ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        ) AS n_launched
    FROM (
        SELECT
            h.trace_profile_id, h.stream_key, h.launch_ts_ns AS at_ns, h.start_ns, h.event_id, FALSE AS is_sync
        FROM _gpu_history AS h
        JOIN inferring AS i ON i.trace_profile_id = h.trace_profile_id
        WHERE h.launch_ts_ns IS NOT NULL
        UNION ALL
        SELECT s.trace_profile_id, s.stream_key, d.start_ns, d.start_ns, d.event_id, TRUE
        FROM device_syncs AS d
        JOIN stream_list AS s ON s.trace_profile_id = d.trace_profile_id AND s.process_no = d.process_no
    ) AS both_kinds
)
SELECT
    trace_profile_id,  -- The trace as a profile sees it.
    event_id,  -- A call that may have waited.
    -- GPU work that it may have waited for.
    CASE WHEN waits_for_event THEN recorded_event_id ELSE launched_event_id END AS source_event_id,
    NOT waits_for_device AS waits_for_one  -- The call is for one stream or event, so it waited for no other work.
FROM recording
WHERE is_blocking AND CASE WHEN waits_for_event THEN recorded_event_id ELSE launched_event_id END IS NOT NULL
UNION
SELECT trace_profile_id, event_id, last_event_id, FALSE
FROM launching
WHERE is_copying
UNION
SELECT s.trace_profile_id, s.event_id, w.event_id, FALSE
FROM on_streams AS s
JOIN on_streams AS w
    ON w.trace_profile_id = s.trace_profile_id AND w.stream_key = s.stream_key AND w.n_launched = s.n_launched
WHERE s.is_sync AND NOT w.is_sync
