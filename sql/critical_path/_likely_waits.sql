-- One row: GPU work or a blocking call, and GPU work that it may have had to wait for, where the trace has no cuda_sync
-- row that would show this: in traces with such rows, calls without one (cudaFree, copies that block).
-- How: by the order of calls, of a thread and of the autograd engine's threads that work for it. The next launch after
-- a stream's wait is what waits, for the work launched last before an event was recorded: the event recorded last; of
-- several waits in a row the events recorded last, one each. Where times contradict that (it ended over 2 us too late)
-- or it ran on the same stream, for the next older event of the last four. A blocking call waits for the work launched
-- last, one for an event for that of the event recorded last, one for the whole device for the work launched last on
-- every stream of its process, and one that copies for its own copy. Whether any of them did wait is for the times to
-- tell: the edges say what could not have happened earlier.
WITH inferring AS (
    SELECT p.trace_profile_id, s.trace_profile_id IS NOT NULL AS is_recorded
    FROM _profiles AS p
    LEFT JOIN _recording_traces AS s ON s.trace_profile_id = p.trace_profile_id
    WHERE p.infer_waits AND p.covers_window
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
shown AS (
    SELECT DISTINCT l.trace_profile_id, l.launch_event_id
    FROM _links AS l
    JOIN inferring AS i ON i.trace_profile_id = l.trace_profile_id AND i.is_recorded
    JOIN _loaded_events AS e ON e.trace_profile_id = l.trace_profile_id AND e.event_id = l.gpu_event_id
    WHERE e.sync_kind IS NOT NULL
),
-- A process whose other threads are the autograd engine's works in one order.
mains AS (
    SELECT trace_profile_id, process_no, min(thread_id) AS thread_id
    FROM _thread_roles
    WHERE is_working AND NOT is_autograd
    GROUP BY trace_profile_id, process_no
    HAVING count(*) = 1
),
calls AS (
    SELECT
        e.trace_profile_id, e.event_id, e.start_ns, l.first_event_id, l.last_event_id, r.process_no,
        CASE WHEN r.is_autograd THEN coalesce(m.thread_id, e.thread_id) ELSE e.thread_id END AS thread_id,
        e.is_record AND NOT i.is_recorded AS is_record, e.is_wait AND NOT i.is_recorded AS is_wait,
        e.is_blocking AND NOT e.is_poll AND l.launch_event_id IS NULL AND s.launch_event_id IS NULL AS is_blocking,
        e.waits_for_device, e.waits_for_event, e.is_blocking AND l.launch_event_id IS NOT NULL AS is_copying
    FROM _loaded_events AS e
    JOIN inferring AS i ON i.trace_profile_id = e.trace_profile_id
    JOIN _thread_roles AS r ON r.trace_profile_id = e.trace_profile_id AND r.thread_id = e.thread_id
    LEFT JOIN mains AS m ON m.trace_profile_id = r.trace_profile_id AND m.process_no = r.process_no
    LEFT JOIN launched AS l ON l.trace_profile_id = e.trace_profile_id AND l.launch_event_id = e.event_id
    LEFT JOIN shown AS s ON s.trace_profile_id = e.trace_profile_id AND s.launch_event_id = e.event_id
    WHERE e.is_operator AND (l.launch_event_id IS NOT NULL OR e.is_record OR e.is_wait OR e.is_blocking)
),
-- The last launch before a call is the n-th of its thread, where n is how many there were by then; the next launch is
-- the one after it. DuckDB's last_value with IGNORE NULLS would step back over every call since, for each call anew.
numbered AS (
    SELECT
        *,
        count(last_event_id) OVER (
            PARTITION BY trace_profile_id, thread_id ORDER BY start_ns, event_id
            ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        ) AS n_launched
    FROM calls
),
launching AS (
    SELECT n.*, b.last_event_id AS launched_event_id, a.first_event_id AS next_event_id
    FROM numbered AS n
    LEFT JOIN numbered AS b
        ON b.trace_profile_id = n.trace_profile_id AND b.thread_id = n.thread_id AND b.n_launched = n.n_launched
            AND b.last_event_id IS NOT NULL
    LEFT JOIN numbered AS a
        ON a.trace_profile_id = n.trace_profile_id AND a.thread_id = n.thread_id
            AND a.n_launched = n.n_launched + CASE WHEN n.last_event_id IS NULL THEN 1 ELSE 0 END
            AND a.last_event_id IS NOT NULL
),
counted AS (
    SELECT
        *,
        count(CASE WHEN is_record AND launched_event_id IS NOT NULL THEN 1 END) OVER (
            PARTITION BY trace_profile_id, thread_id ORDER BY start_ns, event_id
            ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        ) AS n_recorded
    FROM launching
),
recording AS (
    SELECT c.*, r.launched_event_id AS recorded_event_id
    FROM counted AS c
    LEFT JOIN counted AS r
        ON r.trace_profile_id = c.trace_profile_id AND r.thread_id = c.thread_id AND r.n_recorded = c.n_recorded
            AND r.is_record AND r.launched_event_id IS NOT NULL
),
records AS (
    SELECT r.trace_profile_id, r.thread_id, r.n_recorded, r.launched_event_id, h.stream_key, h.end_ns
    FROM recording AS r
    JOIN _gpu_history AS h ON h.scope_no = -r.trace_profile_id AND h.event_id = r.launched_event_id
    WHERE r.is_record
),
-- Of several waits in a row the last one comes first.
waiting AS (
    SELECT
        w.trace_profile_id, w.thread_id, w.event_id AS call_event_id, w.next_event_id, h.stream_key, h.start_ns,
        w.n_recorded + 1 - row_number() OVER (
            PARTITION BY w.trace_profile_id, w.thread_id, w.next_event_id, w.n_recorded
            ORDER BY w.start_ns DESC, w.event_id DESC
        ) AS n_recorded
    FROM recording AS w
    JOIN _gpu_history AS h ON h.scope_no = -w.trace_profile_id AND h.event_id = w.next_event_id
    WHERE w.is_wait
),
older AS (
    SELECT 0 AS n
    UNION ALL
    SELECT 1
    UNION ALL
    SELECT 2
    UNION ALL
    SELECT 3
),
stream_waits AS (
    SELECT
        w.trace_profile_id, w.next_event_id, r.launched_event_id,
        row_number() OVER (PARTITION BY w.trace_profile_id, w.call_event_id ORDER BY r.n_recorded DESC) AS choice
    FROM waiting AS w
    CROSS JOIN older AS o
    JOIN records AS r
        ON r.trace_profile_id = w.trace_profile_id AND r.thread_id = w.thread_id AND r.n_recorded = w.n_recorded - o.n
    WHERE r.stream_key <> w.stream_key AND r.end_ns <= w.start_ns + 2000
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
    next_event_id AS event_id,  -- GPU work or a call that may have waited.
    launched_event_id AS source_event_id,  -- GPU work that it may have waited for.
    FALSE AS is_call,  -- TRUE: a CPU call; FALSE: GPU work.
    FALSE AS waits_for_one  -- A call for one stream or event: it waited for no other work.
FROM stream_waits
WHERE choice = 1
UNION
SELECT
    trace_profile_id, event_id, CASE WHEN waits_for_event THEN recorded_event_id ELSE launched_event_id END, TRUE,
    NOT waits_for_device
FROM recording
WHERE is_blocking AND CASE WHEN waits_for_event THEN recorded_event_id ELSE launched_event_id END IS NOT NULL
UNION
SELECT trace_profile_id, event_id, last_event_id, TRUE, FALSE
FROM launching
WHERE is_copying
UNION
SELECT s.trace_profile_id, s.event_id, w.event_id, TRUE, FALSE
FROM on_streams AS s
JOIN on_streams AS w
    ON w.trace_profile_id = s.trace_profile_id AND w.stream_key = s.stream_key AND w.n_launched = s.n_launched
WHERE s.is_sync AND NOT w.is_sync
