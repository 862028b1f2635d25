-- One row: a launch on a stream whose queue was full at times, and the work before it that has to end first.
-- How: a stream holds so many launches (CUDA: about 1,000) and no more; the next call returns when the first of them
-- has ended. That number, 100 and more, shows as the depth of the queue at which calls begin again and again: none is
-- deeper (by more than 2, because clocks disagree), no call returns before the first of them has ended, and those that
-- take long (20 us; at least 8) return within 15 us of it: nine of ten, for clocks' sake. A slow launch at any other
-- depth is slow for reasons of its own. On such a stream, what was launched that many launches before each call has to
-- end before it returns.
WITH suspects AS (
    SELECT h.trace_profile_id, h.stream_key
    FROM _gpu_history AS h
    JOIN _profiles AS p ON p.trace_profile_id = h.trace_profile_id AND p.covers_window
    JOIN _loaded_events AS c ON c.trace_profile_id = h.trace_profile_id AND c.event_id = h.launch_event_id
    WHERE c.duration_ns > 20000 AND h.busy_until_ns > h.launch_ts_ns + c.duration_ns
    GROUP BY h.trace_profile_id, h.stream_key
    HAVING count(*) >= 8
),
-- A launch of a graph is one, which ends with its last work on the stream.
work AS (
    SELECT
        h.trace_profile_id, h.stream_key, h.event_id, h.launch_event_id, h.launch_ts_ns, h.start_ns, h.end_ns,
        row_number() OVER (
            PARTITION BY h.trace_profile_id, h.stream_key, coalesce(h.launch_event_id, -1 - h.event_id)
            ORDER BY h.end_ns DESC, h.event_id DESC
        ) AS place
    FROM _gpu_history AS h
    JOIN suspects AS s ON s.trace_profile_id = h.trace_profile_id AND s.stream_key = h.stream_key
),
launches AS (
    SELECT
        w.trace_profile_id, w.stream_key, w.event_id, w.launch_event_id, w.launch_ts_ns, c.duration_ns, w.end_ns,
        row_number() OVER (
            PARTITION BY w.trace_profile_id, w.stream_key ORDER BY w.start_ns, w.event_id
        ) AS ordinal
    FROM work AS w
    LEFT JOIN _loaded_events AS c ON c.trace_profile_id = w.trace_profile_id AND c.event_id = w.launch_event_id
    WHERE w.place = 1
),
-- How many launches have ended when each call begins.
ended AS (
    SELECT
        trace_profile_id, stream_key, ordinal, is_call,
        sum(CASE WHEN is_call = 0 THEN 1 ELSE 0 END) OVER (
            PARTITION BY trace_profile_id, stream_key ORDER BY at_ns, is_call
            ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        ) AS n_ended
    FROM (
        SELECT trace_profile_id, stream_key, ordinal, end_ns AS at_ns, 0 AS is_call FROM launches
        UNION ALL
        SELECT trace_profile_id, stream_key, ordinal, launch_ts_ns, 1 FROM launches WHERE launch_ts_ns IS NOT NULL
    ) AS marks
),
-- From the end of what was first in the queue then to the return of the call.
depths AS (
    SELECT
        e.trace_profile_id, e.stream_key, e.ordinal - 1 - e.n_ended AS depth, l.duration_ns > 20000 AS is_slow,
        l.launch_ts_ns + l.duration_ns - s.end_ns AS return_ns
    FROM ended AS e
    JOIN launches AS l
        ON l.trace_profile_id = e.trace_profile_id AND l.stream_key = e.stream_key AND l.ordinal = e.ordinal
    JOIN launches AS s
        ON s.trace_profile_id = e.trace_profile_id AND s.stream_key = e.stream_key AND s.ordinal = e.n_ended + 1
    WHERE e.is_call = 1
),
levels AS (
    SELECT
        trace_profile_id, stream_key, depth, count(*) AS n_calls, count(*) FILTER (WHERE return_ns >= 0) AS n_freed,
        count(*) FILTER (WHERE is_slow) AS n_slow,
        count(*) FILTER (WHERE is_slow AND return_ns BETWEEN 0 AND 15000) AS n_returned
    FROM depths
    GROUP BY trace_profile_id, stream_key, depth
),
ranked AS (
    SELECT
        *,
        row_number() OVER (PARTITION BY trace_profile_id, stream_key ORDER BY n_slow DESC, depth DESC) AS choice,
        max(depth) OVER (PARTITION BY trace_profile_id, stream_key) AS most
    FROM levels
),
full_queues AS (
    SELECT trace_profile_id, stream_key, depth
    FROM ranked
    WHERE
        choice = 1 AND depth >= 100 AND most <= depth + 2 AND n_slow >= 8
        AND 10 * n_freed >= 9 * n_calls AND 10 * n_returned >= 9 * n_slow
)
SELECT
    l.trace_profile_id,  -- The trace as a profile sees it.
    l.launch_event_id AS event_id,  -- The call.
    s.event_id AS source_event_id,  -- GPU work that has to end before the call returns.
    s.end_ns AS source_end_ns  -- Its end, ns.
FROM full_queues AS f
JOIN launches AS l ON l.trace_profile_id = f.trace_profile_id AND l.stream_key = f.stream_key
JOIN launches AS s
    ON s.trace_profile_id = f.trace_profile_id AND s.stream_key = f.stream_key AND s.ordinal = l.ordinal - f.depth
WHERE l.launch_event_id IS NOT NULL
