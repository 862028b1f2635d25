-- One row: the start or end of a CPU event of a window, in the order in which its thread enters and leaves it.
-- How: like call_stacks, over the clipped events; the backward thread is merged into the forward thread where each is
-- the only one of its kind (HTA 2.8.5).
-- With exit_pops_top, an end closes the event on top of the stack, which makes a difference where events cross.
WITH named AS (
    SELECT
        c.window_no, t.tid, bool_or(c.is_forward) AS is_forward,
        bool_or(c.is_backward) AND NOT (bool_or(c.is_forward) AND p.steps_name_forward_thread) AS is_backward
    FROM _clip AS c
    JOIN critical_path_windows AS w ON w.window_no = c.window_no
    JOIN threads AS t ON t.trace_id = w.trace_id AND t.thread_id = c.thread_id
    JOIN _profiles AS p ON p.trace_profile_id = w.trace_profile_id
    WHERE c.is_forward OR c.is_backward
    GROUP BY c.window_no, t.tid, p.steps_name_forward_thread
),
merged AS (
    SELECT
        window_no,
        max(tid) FILTER (WHERE is_forward) AS forward_tid,
        max(tid) FILTER (WHERE is_backward) AS backward_tid
    FROM named
    GROUP BY window_no
    HAVING
        count(*) FILTER (WHERE is_forward) = 1 AND count(*) FILTER (WHERE is_backward) = 1
        AND max(tid) FILTER (WHERE is_forward) <> max(tid) FILTER (WHERE is_backward)
        AND max(tid) FILTER (WHERE is_forward) <> '0' AND max(tid) FILTER (WHERE is_backward) <> '0'
),
moved AS (
    SELECT m.window_no, b.thread_id, max(f.thread_id) AS merged_thread_id
    FROM merged AS m
    JOIN critical_path_windows AS w ON w.window_no = m.window_no
    JOIN threads AS b ON b.trace_id = w.trace_id AND b.tid = m.backward_tid
    JOIN threads AS f ON f.trace_id = w.trace_id AND f.tid = m.forward_tid AND f.pid = b.pid
    GROUP BY m.window_no, b.thread_id
),
cpu AS (
    SELECT
        -- Window and thread in one number (2^20 threads per window): a sort key of one column instead of two.
        c.window_no * 1048576 + coalesce(m.merged_thread_id, c.thread_id) AS thread_key,
        c.event_id, c.ts_ns, c.dur_ns, c.is_operator, c.is_lock, c.is_blocking, p.exit_pops_top
    FROM _clip AS c
    JOIN critical_path_windows AS w ON w.window_no = c.window_no
    JOIN _profiles AS p ON p.trace_profile_id = w.trace_profile_id
    LEFT JOIN moved AS m ON m.window_no = c.window_no AND m.thread_id = c.thread_id
    WHERE c.side = 'cpu'
),
marks AS (
    -- Order at equal times: ends (shorter, then later in the file), starts (longer, then earlier), events with zero
    -- duration. `turn` puts that into one number: 2^62 is more than any duration, so ends are below all starts, and
    -- events with zero duration above them.
    SELECT
        *, 1 AS change, ts_ns AS at_ns,
        CASE WHEN dur_ns = 0 THEN 4611686018427387904 ELSE -dur_ns END AS turn, event_id * 2 AS by_place
    FROM cpu
    UNION ALL
    SELECT
        *, -1, ts_ns + dur_ns,
        CASE WHEN dur_ns = 0 THEN 4611686018427387904 ELSE dur_ns - 4611686018427387904 END,
        CASE WHEN dur_ns = 0 THEN event_id * 2 + 1 ELSE -event_id END
    FROM cpu
),
ordered AS (
    SELECT
        thread_key, event_id, exit_pops_top, change, at_ns, is_operator, is_lock, is_blocking,
        row_number() OVER thread AS ordinal,
        sum(change) OVER (thread ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)
        + CASE WHEN change = 1 THEN 0 ELSE 1 END AS depth,
        lag(change) OVER thread AS change_before,
        lag(event_id) OVER thread AS event_before
    FROM marks
    WINDOW thread AS (PARTITION BY thread_key ORDER BY at_ns, turn, by_place)
),
by_level AS (
    SELECT
        thread_key, ordinal, event_id, change, at_ns, depth, is_operator, is_lock, is_blocking, exit_pops_top,
        last_value(CASE WHEN change = 1 AND change_before = 1 THEN event_before END IGNORE NULLS) OVER (
            PARTITION BY thread_key, depth ORDER BY ordinal ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        ) AS opener,
        lag(event_id) OVER (PARTITION BY thread_key, depth ORDER BY ordinal) AS before_event_id
    FROM ordered
    -- Only starts look for a parent, unless ends may close another event.
    WHERE change = 1 OR exit_pops_top
),
popped AS (
    SELECT
        b.thread_key, b.ordinal, b.change, b.depth, b.opener, b.exit_pops_top,
        t.event_id, t.ts_ns + t.dur_ns AS at_ns, t.is_operator, t.is_lock, t.is_blocking
    FROM by_level AS b
    JOIN cpu AS t ON t.thread_key = b.thread_key AND t.event_id = b.before_event_id
    WHERE b.change = -1
)
SELECT
    -- The window and the thread: window_no * 1048576 + thread_id, after the backward thread joined the forward one.
    thread_key,
    ordinal,  -- Place on the thread, from 1.
    event_id,  -- The event entered or left.
    change,  -- 1 for entering, -1 for leaving.
    at_ns,  -- Start or end of the event itself, ns.
    -- The event around it; NULL at the top, and for ends unless exit_pops_top.
    CASE WHEN depth > 1 THEN opener END AS parent_event_id,
    is_operator,  -- A node of the graph.
    is_lock,  -- Takes the runtime lock.
    is_blocking,  -- Waits for the GPU.
    exit_pops_top  -- In this profile, ends close whatever is on top of the stack.
FROM by_level
WHERE change = 1
UNION ALL
SELECT
    thread_key, ordinal, event_id, change, at_ns, CASE WHEN depth > 1 THEN opener END, is_operator, is_lock,
    is_blocking, exit_pops_top
FROM popped
UNION ALL
SELECT thread_key, ordinal, event_id, change, at_ns, NULL, is_operator, is_lock, is_blocking, exit_pops_top
FROM ordered
WHERE change = -1 AND NOT exit_pops_top
