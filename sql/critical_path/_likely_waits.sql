-- One row: GPU work or a blocking call, and GPU work that it may have had to wait for, in a trace without the
-- cuda_sync rows that would show this.
-- How: by the order of a thread's calls. A stream waits for the event recorded last, and that follows the work
-- launched last; the next launch is what waits. A blocking call waits for the work that its thread launched last, one
-- for the whole device for the work launched last on every stream of its process, and one that copies for its own
-- copy. Whether any of them did wait is for the times to tell: the edges say what could not have happened earlier.
WITH inferring AS (
    SELECT p.trace_profile_id
    FROM _profiles AS p
    LEFT JOIN _recording_traces AS s ON s.trace_profile_id = p.trace_profile_id
    WHERE p.infer_waits AND p.covers_window AND s.trace_profile_id IS NULL
),
launches AS (
    SELECT
        h.trace_profile_id, h.launch_event_id, min(h.launch_ts_ns) AS launch_ts_ns, min(h.event_id) AS first_event_id,
        max(h.event_id) AS last_event_id
    FROM _gpu_history AS h
    JOIN inferring AS i ON i.trace_profile_id = h.trace_profile_id
    WHERE h.launch_event_id IS NOT NULL
    GROUP BY h.trace_profile_id, h.launch_event_id
),
-- Work of one launch in order of time: where there is more than one, the first and the last to begin.
graphs AS (
    SELECT
        h.trace_profile_id, h.launch_event_id, h.event_id,
        row_number() OVER (PARTITION BY h.trace_profile_id, h.launch_event_id ORDER BY h.start_ns, h.event_id) AS place,
        row_number() OVER (
            PARTITION BY h.trace_profile_id, h.launch_event_id ORDER BY h.end_ns DESC, h.event_id DESC
        ) AS place_from_end
    FROM _gpu_history AS h
    JOIN launches AS l ON l.trace_profile_id = h.trace_profile_id AND l.launch_event_id = h.launch_event_id
    WHERE l.first_event_id <> l.last_event_id
),
launched AS (
    SELECT trace_profile_id, launch_event_id, first_event_id, last_event_id
    FROM launches
    WHERE first_event_id = last_event_id
    UNION ALL
    SELECT
        trace_profile_id, launch_event_id, max(CASE WHEN place = 1 THEN event_id END),
        max(CASE WHEN place_from_end = 1 THEN event_id END)
    FROM graphs
    GROUP BY trace_profile_id, launch_event_id
),
calls AS (
    SELECT
        e.trace_profile_id, e.thread_id, e.event_id, e.start_ns, l.first_event_id, l.last_event_id, e.is_record,
        e.is_wait, e.is_blocking AND NOT e.is_poll AND l.launch_event_id IS NULL AS is_blocking,
        e.waits_for_device, e.is_blocking AND l.launch_event_id IS NOT NULL AS is_copying
    FROM _loaded_events AS e
    JOIN inferring AS i ON i.trace_profile_id = e.trace_profile_id
    LEFT JOIN launched AS l ON l.trace_profile_id = e.trace_profile_id AND l.launch_event_id = e.event_id
    WHERE e.is_operator AND (l.launch_event_id IS NOT NULL OR e.is_record OR e.is_wait OR e.is_blocking)
),
launching AS (
    SELECT
        *,
        last_value(last_event_id IGNORE NULLS) OVER (
            PARTITION BY trace_profile_id, thread_id ORDER BY start_ns, event_id
            ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        ) AS launched_event_id,
        first_value(first_event_id IGNORE NULLS) OVER (
            PARTITION BY trace_profile_id, thread_id ORDER BY start_ns, event_id
            ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING
        ) AS next_event_id
    FROM calls
),
recording AS (
    SELECT
        *,
        last_value(CASE WHEN is_record THEN launched_event_id END IGNORE NULLS) OVER (
            PARTITION BY trace_profile_id, thread_id ORDER BY start_ns, event_id
            ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        ) AS recorded_event_id
    FROM launching
),
device_syncs AS (
    SELECT c.trace_profile_id, c.event_id, c.start_ns, r.process_no
    FROM calls AS c
    JOIN _thread_roles AS r ON r.trace_profile_id = c.trace_profile_id AND r.thread_id = c.thread_id
    WHERE c.is_blocking AND c.waits_for_device
),
stream_list AS (
    SELECT DISTINCT h.trace_profile_id, h.stream_key, r.process_no
    FROM _gpu_history AS h
    JOIN inferring AS i ON i.trace_profile_id = h.trace_profile_id
    JOIN calls AS c ON c.trace_profile_id = h.trace_profile_id AND c.event_id = h.launch_event_id
    JOIN _thread_roles AS r ON r.trace_profile_id = c.trace_profile_id AND r.thread_id = c.thread_id
),
on_streams AS (
    SELECT
        trace_profile_id, event_id, is_sync,
        last_value(CASE WHEN NOT is_sync THEN event_id END IGNORE NULLS) OVER (
            PARTITION BY trace_profile_id, stream_key ORDER BY at_ns, start_ns, event_id
            ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        ) AS launched_event_id
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
    next_event_id AS event_id,  -- GPU work or a call that may have waited.
    recorded_event_id AS source_event_id,  -- GPU work that it may have waited for.
    FALSE AS is_call  -- TRUE: a CPU call; FALSE: GPU work.
FROM recording
WHERE is_wait AND next_event_id IS NOT NULL AND recorded_event_id IS NOT NULL AND next_event_id <> recorded_event_id
UNION
SELECT trace_profile_id, event_id, launched_event_id, TRUE
FROM launching
WHERE is_blocking AND launched_event_id IS NOT NULL
UNION
SELECT trace_profile_id, event_id, last_event_id, TRUE
FROM launching
WHERE is_copying
UNION
SELECT trace_profile_id, event_id, launched_event_id, TRUE
FROM on_streams
WHERE is_sync AND launched_event_id IS NOT NULL
