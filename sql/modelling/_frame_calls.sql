-- One row: a launch of GPU work, or a forward operator with a backward, with the Python frames open on its thread.
-- How: as in op_kernels: open frames are running sums over starts and ends, the frame at a depth is the last that
-- reached it. A trace without Python frames has no rows.
WITH traced AS (
    SELECT DISTINCT trace_id FROM events WHERE cat = 'python_function' AND duration_ns > 0
),
asked AS (
    SELECT k.trace_id, k.launch_event_id AS event_id
    FROM kernels AS k
    JOIN traced AS t ON t.trace_id = k.trace_id
    WHERE k.launch_event_id IS NOT NULL
    UNION
    SELECT c.trace_id, c.forward_event_id
    FROM _work_contexts AS c
    JOIN traced AS t ON t.trace_id = c.trace_id
    WHERE c.forward_event_id IS NOT NULL
),
calls AS (
    SELECT e.trace_id, t.thread_id, e.event_id, e.start_ns, greatest(e.duration_ns, 0) AS duration_ns
    FROM asked AS a
    JOIN events AS e ON e.trace_id = a.trace_id AND e.event_id = a.event_id
    JOIN threads AS t ON t.trace_id = e.trace_id AND t.pid = e.pid AND t.tid = e.tid
    WHERE e.start_ns IS NOT NULL
),
calling AS (
    SELECT DISTINCT trace_id, thread_id FROM calls
),
framed AS (
    SELECT e.trace_id, c.thread_id, e.event_id, e.name, e.start_ns, e.duration_ns
    FROM events AS e
    JOIN threads AS t ON t.trace_id = e.trace_id AND t.pid = e.pid AND t.tid = e.tid
    JOIN calling AS c ON c.trace_id = t.trace_id AND c.thread_id = t.thread_id
    WHERE e.cat = 'python_function' AND e.duration_ns > 0 AND e.start_ns IS NOT NULL
),
-- Most frames launch nothing: of them, only those stay that a call follows before they end.
follows AS (
    SELECT
        trace_id, thread_id, event_id, name, start_ns, duration_ns,
        min(call_ts_ns) OVER (
            PARTITION BY trace_id, thread_id
            ORDER BY start_ns DESC, turn ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        ) AS call_ts_ns
    FROM (
        SELECT trace_id, thread_id, event_id, name, start_ns, duration_ns, 1 AS turn, NULL AS call_ts_ns FROM framed
        UNION ALL
        SELECT trace_id, thread_id, event_id, NULL, start_ns, duration_ns, 0, start_ns FROM calls
    ) AS all_of_them
),
holding AS (
    SELECT trace_id, thread_id, event_id, name, start_ns, duration_ns
    FROM follows
    WHERE name IS NOT NULL AND call_ts_ns < start_ns + duration_ns
),
foreign_names AS (
    SELECT name
    FROM (SELECT DISTINCT name FROM holding) AS n
    WHERE first_python_frames(name) IS NOT NULL
),
marks AS (
    SELECT
        f.trace_id, f.thread_id, f.event_id, f.start_ns AS at_ns, 1 AS turn, -f.duration_ns AS by_length,
        f.event_id AS by_place, 1 AS change, CASE WHEN n.name IS NULL THEN 1 ELSE 0 END AS of_user
    FROM holding AS f
    LEFT JOIN foreign_names AS n ON n.name = f.name
    UNION ALL
    SELECT
        f.trace_id, f.thread_id, f.event_id, f.start_ns + f.duration_ns, 0, f.duration_ns, -f.event_id, -1,
        CASE WHEN n.name IS NULL THEN -1 ELSE 0 END
    FROM holding AS f
    LEFT JOIN foreign_names AS n ON n.name = f.name
    UNION ALL
    SELECT trace_id, thread_id, event_id, start_ns, 1, -duration_ns, event_id, 0, 0 FROM calls
),
ordered AS (
    SELECT
        trace_id, thread_id, event_id, change, of_user,
        row_number() OVER in_time AS ordinal,
        sum(change) OVER (in_time ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS n_open,
        sum(of_user) OVER (in_time ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS n_of_user
    FROM marks
    WINDOW in_time AS (PARTITION BY trace_id, thread_id ORDER BY at_ns, turn, by_length, by_place)
),
-- First the places of the frames, as in _call_operators.
found AS (
    SELECT
        trace_id, thread_id, event_id, change, n_open, n_of_user,
        max(CASE WHEN change = 1 THEN ordinal END) OVER (
            PARTITION BY trace_id, thread_id, n_open ORDER BY ordinal ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        ) AS innermost,
        max(CASE WHEN of_user = 1 THEN ordinal END) OVER (
            PARTITION BY trace_id, thread_id, n_of_user ORDER BY ordinal
            ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        ) AS innermost_of_user
    FROM ordered
    WHERE change >= 0
),
placed AS (
    SELECT
        trace_id, thread_id, event_id, CASE WHEN n_open > 0 THEN innermost END AS frame_ordinal,
        CASE WHEN n_of_user > 0 THEN innermost_of_user END AS user_frame_ordinal
    FROM found
    WHERE change = 0
)
SELECT
    c.trace_id,  -- The trace.
    c.event_id,  -- The launch or forward operator.
    f.event_id AS frame_event_id,  -- Innermost frame; NULL where none is open.
    u.event_id AS user_frame_event_id  -- Innermost frame of the user's code; NULL where none is open.
FROM placed AS c
LEFT JOIN ordered AS f
    ON f.trace_id = c.trace_id AND f.thread_id = c.thread_id AND f.ordinal = c.frame_ordinal
LEFT JOIN ordered AS u
    ON u.trace_id = c.trace_id AND u.thread_id = c.thread_id AND u.ordinal = c.user_frame_ordinal
