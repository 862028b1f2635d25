-- One row: a launch on a stream whose queue was full at times, and the work before it that has to end first.
-- How: a stream holds so many launches whose work has not begun (CUDA: 1,021 on an H100) and no more; the next call
-- returns when the first of them begins. Copies between host and device go another way: they hold up what is behind
-- them and take no room. That number, 99 and more, shows as the depth of the queue at which calls begin again and
-- again: none is deeper (by more than 2, because clocks disagree), no call returns before what the first of them is
-- behind has ended, and those that take long (20 us; at least 8) return within 15 us of its beginning, or within 50 us
-- (a slow profiler) that are at most a quarter of the call: nine of ten, for clocks' sake. A slow launch at any other
-- depth is slow for reasons of its own. On such a stream, what was launched that many launches before each call has to
-- begin before it returns: what it is behind has to end. Launches whose work would begin after the trace's end (half of
-- those in an export of one second) are in the queue, too: a slow one that returned at once when work of the stream
-- began waited for what that was behind.
WITH suspects AS (
    SELECT h.trace_profile_id, h.stream_key
    FROM _gpu_history AS h
    JOIN _profiles AS p ON p.trace_profile_id = h.trace_profile_id AND p.covers_window
    JOIN _loaded_events AS c ON c.trace_profile_id = h.trace_profile_id AND c.event_id = h.launch_event_id
    WHERE c.duration_ns > 20000 AND h.busy_until_ns > h.launch_ts_ns + c.duration_ns
    GROUP BY h.trace_profile_id, h.stream_key
    HAVING count(*) >= 8
),
-- What each piece of work is behind on its stream.
in_order AS (
    SELECT
        h.trace_profile_id, h.stream_key, h.event_id, h.launch_event_id, h.launch_ts_ns, h.start_ns,
        lag(h.event_id) OVER (
            PARTITION BY h.trace_profile_id, h.stream_key ORDER BY h.start_ns, h.event_id
        ) AS before_event_id,
        lag(h.end_ns) OVER (
            PARTITION BY h.trace_profile_id, h.stream_key ORDER BY h.start_ns, h.event_id
        ) AS before_end_ns
    FROM _gpu_history AS h
    JOIN suspects AS s ON s.trace_profile_id = h.trace_profile_id AND s.stream_key = h.stream_key
),
-- A launch of a graph is one, which begins with its first work on the stream.
work AS (
    SELECT
        o.*,
        row_number() OVER (
            PARTITION BY o.trace_profile_id, o.stream_key, coalesce(o.launch_event_id, -1 - o.event_id)
            ORDER BY o.start_ns, o.event_id
        ) AS place
    FROM in_order AS o
    JOIN _profiles AS p ON p.trace_profile_id = o.trace_profile_id
    JOIN events AS e ON e.trace_id = p.trace_id AND e.event_id = o.event_id
    WHERE e.cat <> 'gpu_memcpy' OR NOT regexp_matches(e.name, 'HtoD|DtoH|HostToDevice|DeviceToHost')
),
launches AS (
    SELECT
        w.trace_profile_id, w.stream_key, w.launch_event_id, w.launch_ts_ns, c.duration_ns, w.start_ns,
        w.before_event_id, w.before_end_ns,
        row_number() OVER (
            PARTITION BY w.trace_profile_id, w.stream_key ORDER BY w.start_ns, w.event_id
        ) AS ordinal
    FROM work AS w
    LEFT JOIN _loaded_events AS c ON c.trace_profile_id = w.trace_profile_id AND c.event_id = w.launch_event_id
    WHERE w.place = 1
),
-- How many launches have begun on the GPU when each call begins.
begun AS (
    SELECT
        trace_profile_id, stream_key, ordinal, is_call,
        sum(CASE WHEN is_call = 0 THEN 1 ELSE 0 END) OVER (
            PARTITION BY trace_profile_id, stream_key ORDER BY at_ns, is_call
            ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        ) AS n_begun
    FROM (
        SELECT trace_profile_id, stream_key, ordinal, start_ns AS at_ns, 0 AS is_call FROM launches
        UNION ALL
        SELECT trace_profile_id, stream_key, ordinal, launch_ts_ns, 1 FROM launches WHERE launch_ts_ns IS NOT NULL
    ) AS marks
),
-- When the call returned, seen from what was first in the queue when it began.
depths AS (
    SELECT
        b.trace_profile_id, b.stream_key, b.ordinal - 1 - b.n_begun AS depth, l.duration_ns > 20000 AS is_slow,
        l.launch_ts_ns + l.duration_ns >= s.before_end_ns AS is_after,
        l.launch_ts_ns + l.duration_ns - s.start_ns <= greatest(15000, least(50000, l.duration_ns // 4)) AS is_at_once
    FROM begun AS b
    JOIN launches AS l
        ON l.trace_profile_id = b.trace_profile_id AND l.stream_key = b.stream_key AND l.ordinal = b.ordinal
    JOIN launches AS s
        ON s.trace_profile_id = b.trace_profile_id AND s.stream_key = b.stream_key AND s.ordinal = b.n_begun + 1
    WHERE b.is_call = 1
),
levels AS (
    SELECT
        trace_profile_id, stream_key, depth, count(*) AS n_calls, count(*) FILTER (WHERE is_after) AS n_after,
        count(*) FILTER (WHERE is_slow) AS n_slow,
        count(*) FILTER (WHERE is_slow AND is_after AND is_at_once) AS n_at_once
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
        choice = 1 AND depth >= 99 AND most <= depth + 2 AND n_slow >= 8
        AND 10 * n_after >= 9 * n_calls AND 10 * n_at_once >= 9 * n_slow
),
-- The last launch of the stream whose work the trace has.
last_known AS (
    SELECT
        f.trace_profile_id, f.stream_key, f.depth, l.launch_ts_ns, c.thread_id,
        max(l.ordinal) OVER (PARTITION BY f.trace_profile_id, f.stream_key) AS n_known
    FROM full_queues AS f
    JOIN launches AS l ON l.trace_profile_id = f.trace_profile_id AND l.stream_key = f.stream_key
    JOIN _loaded_events AS c ON c.trace_profile_id = l.trace_profile_id AND c.event_id = l.launch_event_id
    QUALIFY
        row_number() OVER (
            PARTITION BY f.trace_profile_id, f.stream_key ORDER BY l.launch_ts_ns DESC, l.launch_event_id
        ) = 1
),
-- Calls after it on its thread whose work the trace lacks. Copies among them count: their direction is not known.
late_calls AS (
    SELECT
        k.trace_profile_id, k.stream_key, k.depth, k.n_known, c.event_id, c.start_ns, c.duration_ns,
        contains(e.name, 'Launch') AS is_launch,
        row_number() OVER (PARTITION BY k.trace_profile_id, k.stream_key ORDER BY c.start_ns, c.event_id) AS n_late
    FROM last_known AS k
    JOIN _loaded_events AS c
        ON c.trace_profile_id = k.trace_profile_id AND c.thread_id = k.thread_id AND c.start_ns > k.launch_ts_ns
    JOIN _profiles AS p ON p.trace_profile_id = c.trace_profile_id
    JOIN events AS e ON e.trace_id = p.trace_id AND e.event_id = c.event_id
    LEFT JOIN _links AS l ON l.trace_profile_id = c.trace_profile_id AND l.launch_event_id = c.event_id
    WHERE
        l.gpu_event_id IS NULL AND c.is_operator
        AND regexp_matches(e.name, '^(cuda|cu|hip)[A-Za-z]*(Launch|Memcpy|Memset)')
),
-- How many launches could begin until each of these calls began, and until it returned.
late_marks AS (
    SELECT
        trace_profile_id, stream_key, event_id, turn,
        sum(CASE WHEN turn = 0 THEN 1 ELSE 0 END) OVER (
            PARTITION BY trace_profile_id, stream_key ORDER BY at_ns, turn
            ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        ) AS n_free
    FROM (
        SELECT
            l.trace_profile_id, l.stream_key, l.launch_event_id AS event_id,
            coalesce(l.before_end_ns, l.start_ns) AS at_ns, 0 AS turn
        FROM launches AS l
        JOIN full_queues AS f ON f.trace_profile_id = l.trace_profile_id AND f.stream_key = l.stream_key
        UNION ALL
        SELECT trace_profile_id, stream_key, event_id, start_ns, 1 FROM late_calls
        UNION ALL
        SELECT trace_profile_id, stream_key, event_id, start_ns + duration_ns, 2 FROM late_calls
    ) AS marks
),
late_waits AS (
    SELECT c.trace_profile_id, c.event_id, s.before_event_id, s.before_end_ns
    FROM late_calls AS c
    JOIN late_marks AS b
        ON b.trace_profile_id = c.trace_profile_id AND b.stream_key = c.stream_key AND b.event_id = c.event_id
            AND b.turn = 1
    JOIN late_marks AS r
        ON r.trace_profile_id = c.trace_profile_id AND r.stream_key = c.stream_key AND r.event_id = c.event_id
            AND r.turn = 2
    JOIN launches AS s
        ON s.trace_profile_id = c.trace_profile_id AND s.stream_key = c.stream_key AND s.ordinal = r.n_free
    WHERE
        c.is_launch AND c.duration_ns > 20000 AND c.n_known - b.n_free + c.n_late - 1 >= c.depth - 2
        AND c.start_ns + c.duration_ns - s.start_ns <= greatest(15000, least(50000, c.duration_ns // 4))
        AND s.before_event_id IS NOT NULL
)
SELECT
    l.trace_profile_id,  -- The trace as a profile sees it.
    l.launch_event_id AS event_id,  -- The call.
    s.before_event_id AS source_event_id,  -- GPU work that has to end before the call returns.
    s.before_end_ns AS source_end_ns  -- Its end, ns.
FROM full_queues AS f
JOIN launches AS l ON l.trace_profile_id = f.trace_profile_id AND l.stream_key = f.stream_key
JOIN launches AS s
    ON s.trace_profile_id = f.trace_profile_id AND s.stream_key = f.stream_key AND s.ordinal = l.ordinal - f.depth
WHERE l.launch_event_id IS NOT NULL AND s.before_event_id IS NOT NULL
UNION ALL
SELECT trace_profile_id, event_id, before_event_id, before_end_ns FROM late_waits
