-- model: _frame_calls
-- One row: a launch of GPU work, or a forward operator with a backward, with the Python frames open on its thread.
-- How: as in _call_operators, running sums over starts and ends count the open frames. The frame at a depth is the last
-- frame that reached that depth. A trace without Python frames has no rows.
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
-- Most frames launch nothing, so only frames that a call follows before they end are kept.
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
-- This step finds the ordinals of the frames, as in _call_operators.
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
    ON u.trace_id = c.trace_id AND u.thread_id = c.thread_id AND u.ordinal = c.user_frame_ordinal;

-- model: python_frame_gpu_time
-- One row: a Python frame of a trace, the user's frame around it and a phase, with the GPU time of the work that they
-- launched. Only traces with Python frames (with_stack) have rows. The rows of a trace add up to the time of all its
-- GPU work.
-- How: the innermost frames open on the launch call's thread when it started. Work of the backward pass has no such
-- frame, so it belongs to the frames of its forward operator, as far as the trace links the two.
-- check: unique(trace_id, frame, user_frame, phase)
WITH traced AS (
    SELECT DISTINCT trace_id FROM events WHERE cat = 'python_function' AND duration_ns > 0
),
placed AS (
    SELECT
        k.trace_id, k.duration_ns, k.launch_event_id,
        CASE WHEN o.frame_event_id IS NULL AND b.frame_event_id IS NOT NULL THEN 'backward' ELSE 'launch' END AS phase,
        coalesce(o.frame_event_id, b.frame_event_id) AS frame_event_id,
        CASE
            WHEN o.frame_event_id IS NULL THEN b.user_frame_event_id
            ELSE o.user_frame_event_id
        END AS user_frame_event_id
    FROM kernels AS k
    JOIN traced AS t ON t.trace_id = k.trace_id
    LEFT JOIN _frame_calls AS o ON o.trace_id = k.trace_id AND o.event_id = k.launch_event_id
    LEFT JOIN _work_contexts AS c ON c.trace_id = k.trace_id AND c.event_id = k.launch_event_id
    LEFT JOIN _frame_calls AS b ON b.trace_id = c.trace_id AND b.event_id = c.forward_event_id
),
reasoned AS (
    SELECT
        trace_id, duration_ns, frame_event_id, user_frame_event_id,
        CASE
            WHEN launch_event_id IS NULL THEN 'no_launch' WHEN frame_event_id IS NULL THEN 'no_frame' ELSE phase
        END AS phase
    FROM placed
),
summed AS (
    SELECT
        trace_id, frame_event_id, user_frame_event_id, phase, count(*) AS n_kernels, sum(duration_ns) AS gpu_ns
    FROM reasoned
    GROUP BY trace_id, frame_event_id, user_frame_event_id, phase
)
SELECT
    s.trace_id,  -- The trace.
    -- Innermost Python frame, `file(line): function`, a built-in function or a module's call; NULL where there is none.
    f.name AS frame,
    -- Innermost frame in a file that is neither PyTorch's nor Python's own (rules in python_frames); NULL where there
    -- is none.
    u.name AS user_frame,
    -- launch: the frames called the launch; backward: the frames called the forward operator; no_launch: the launch is
    -- not in the trace; no_frame: no frame was open on its thread, and no forward operator with a frame is known.
    s.phase,
    TRY_CAST(sum(s.n_kernels) AS BIGINT) AS n_kernels,  -- GPU activities.
    TRY_CAST(sum(s.gpu_ns) AS BIGINT) AS gpu_ns  -- Summed duration of the activities, ns.
FROM summed AS s
LEFT JOIN events AS f ON f.trace_id = s.trace_id AND f.event_id = s.frame_event_id
LEFT JOIN events AS u ON u.trace_id = s.trace_id AND u.event_id = s.user_frame_event_id
GROUP BY s.trace_id, f.name, u.name, s.phase;
