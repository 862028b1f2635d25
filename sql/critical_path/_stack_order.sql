-- One row: the start or end of a CPU event of a window, in the order in which its thread enters and leaves it.
-- How: as call_stacks, over the clipped events; the backward thread joins the forward thread where each is the only one of its kind (HTA 2.8.5).
-- With exit_pops_top an end leaves the event on top of the stack, which differs where events cross.
WITH named AS (
    SELECT DISTINCT
        trace_id, window_id, tid, contains(name, 'forward') AS is_forward, contains(name, 'autograd') AS is_backward
    FROM _clip
    WHERE side = 'cpu' AND cat IN ('cpu_op', 'user_annotation') AND (contains(name, 'forward') OR contains(name, 'autograd'))
),
merged AS (
    SELECT
        trace_id, window_id,
        max(tid) FILTER (WHERE is_forward) AS forward_tid,
        max(tid) FILTER (WHERE is_backward) AS backward_tid
    FROM named
    GROUP BY trace_id, window_id
    HAVING
        count(DISTINCT tid) FILTER (WHERE is_forward) = 1 AND count(DISTINCT tid) FILTER (WHERE is_backward) = 1
        AND max(tid) FILTER (WHERE is_forward) <> max(tid) FILTER (WHERE is_backward)
        AND max(tid) FILTER (WHERE is_forward) <> '0' AND max(tid) FILTER (WHERE is_backward) <> '0'
),
moved AS (
    SELECT m.trace_id, m.window_id, b.thread_id, max(f.thread_id) AS merged_thread_id
    FROM merged AS m
    JOIN threads AS b ON b.trace_id = m.trace_id AND b.tid = m.backward_tid
    JOIN threads AS f ON f.trace_id = m.trace_id AND f.tid = m.forward_tid AND f.pid = b.pid
    GROUP BY m.trace_id, m.window_id, b.thread_id
),
cpu AS (
    SELECT
        c.trace_id, c.window_id, p.exit_pops_top, coalesce(m.merged_thread_id, c.thread_id) AS thread_id,
        c.event_id, c.ts_ns, c.end_ns, c.end_ns - c.ts_ns AS dur_ns, c.is_operator, c.is_lock, c.is_blocking
    FROM _clip AS c
    JOIN _profiles AS p ON p.trace_id = c.trace_id AND p.profile = c.profile
    LEFT JOIN moved AS m ON m.trace_id = c.trace_id AND m.window_id = c.window_id AND m.thread_id = c.thread_id
    WHERE c.side = 'cpu'
),
marks AS (
    SELECT
        *, 1 AS change, ts_ns AS at_ns,
        CASE WHEN dur_ns = 0 THEN 2 ELSE 1 END AS turn, -dur_ns AS by_length, event_id AS by_place
    FROM cpu
    UNION ALL
    SELECT
        *, -1, end_ns,
        CASE WHEN dur_ns = 0 THEN 2 ELSE 0 END, dur_ns, CASE WHEN dur_ns = 0 THEN event_id ELSE -event_id END
    FROM cpu
),
ordered AS (
    SELECT
        trace_id, window_id, thread_id, event_id, exit_pops_top, change, at_ns, is_operator, is_lock, is_blocking,
        row_number() OVER thread AS place,
        sum(change) OVER (thread ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)
        + CASE WHEN change = 1 THEN 0 ELSE 1 END AS depth,
        lag(change) OVER thread AS change_before,
        lag(event_id) OVER thread AS event_before
    FROM marks
    WINDOW thread AS (
        PARTITION BY trace_id, window_id, thread_id ORDER BY at_ns, turn, by_length, by_place, change DESC
    )
),
opened AS (
    SELECT
        *,
        max(CASE WHEN change = 1 AND change_before = 1 THEN (place - 1) * 4294967296 + event_before END) OVER level_so_far AS opener,
        CASE WHEN change = -1 THEN lag(event_id) OVER level END AS top_event_id
    FROM ordered
    WINDOW
        level AS (PARTITION BY trace_id, window_id, thread_id, depth ORDER BY place),
        level_so_far AS (
            PARTITION BY trace_id, window_id, thread_id, depth ORDER BY place
            ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        )
),
crossed AS (
    SELECT
        o.trace_id, o.window_id, o.thread_id, o.place, t.event_id, t.end_ns, t.is_operator, t.is_lock, t.is_blocking
    FROM opened AS o
    JOIN cpu AS t ON t.trace_id = o.trace_id AND t.window_id = o.window_id AND t.event_id = o.top_event_id
    WHERE o.exit_pops_top AND o.top_event_id <> o.event_id
)
SELECT
    o.trace_id,  -- The trace.
    o.window_id,  -- The window.
    o.thread_id,  -- The thread, after the backward thread joined the forward one.
    o.place,  -- Place on the thread, from 1.
    coalesce(x.event_id, o.event_id) AS event_id,  -- The event entered or left.
    o.change,  -- 1 for entering, -1 for leaving.
    coalesce(x.end_ns, o.at_ns) AS at_ns,  -- The event's own start or end, ns.
    CASE WHEN o.depth > 1 THEN o.opener % 4294967296 END AS parent_event_id,  -- The event around it on the stack.
    coalesce(x.is_operator, o.is_operator) AS is_operator,  -- A node of the graph.
    coalesce(x.is_lock, o.is_lock) AS is_lock,  -- Takes the runtime lock.
    coalesce(x.is_blocking, o.is_blocking) AS is_blocking,  -- Waits for the GPU.
    o.top_event_id IS NOT NULL AND o.top_event_id <> o.event_id AS crosses  -- Its end closes another event: operators cross here.
FROM opened AS o
LEFT JOIN crossed AS x
    ON x.trace_id = o.trace_id AND x.window_id = o.window_id AND x.thread_id = o.thread_id AND x.place = o.place
