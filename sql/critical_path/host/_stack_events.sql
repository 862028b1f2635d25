-- One row: a CPU event of a window without a covering path, and the thread whose stack it is on.
-- How: the CPU events of _clip. The backward thread is merged into the forward thread if the window has exactly one of
-- each (HTA 2.8.5).
WITH named AS (
    SELECT
        c.window_no, t.tid, bool_or(c.is_forward) AS is_forward,
        bool_or(c.is_backward) AND NOT (bool_or(c.is_forward) AND p.steps_name_forward_thread) AS is_backward
    FROM _clip AS c
    JOIN _asked_windows AS w ON w.window_no = c.window_no
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
    JOIN _asked_windows AS w ON w.window_no = m.window_no
    JOIN threads AS b ON b.trace_id = w.trace_id AND b.tid = m.backward_tid
    JOIN threads AS f ON f.trace_id = w.trace_id AND f.tid = m.forward_tid AND f.pid = b.pid
    GROUP BY m.window_no, b.thread_id
)
SELECT
    -- The window and the thread: window_no * 1048576 + thread_id, after merging the backward thread into the forward
    -- thread.
    c.window_no * 1048576 + coalesce(m.merged_thread_id, c.thread_id) AS thread_key,
    c.event_id,  -- The event.
    c.start_ns,  -- Start, ns.
    c.duration_ns,  -- Duration, ns.
    c.is_operator,  -- A node of the graph.
    c.is_lock,  -- Takes the runtime lock.
    c.is_blocking,  -- Waits for the GPU.
    p.exit_pops_top  -- In this profile, an end closes the event on top of the stack.
FROM _clip AS c
JOIN _asked_windows AS w ON w.window_no = c.window_no
JOIN _profiles AS p ON p.trace_profile_id = w.trace_profile_id
LEFT JOIN moved AS m ON m.window_no = c.window_no AND m.thread_id = c.thread_id
WHERE c.side = 'cpu' AND NOT p.covers_window
