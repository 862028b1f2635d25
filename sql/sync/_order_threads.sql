-- One row: a CPU thread of a profile, and the thread in whose order of calls its own count.
-- How: the autograd engine's threads work while the thread that called backward waits. Where a process has one other
-- thread that works, calls of both are in one order.
WITH mains AS (
    SELECT trace_profile_id, process_no, min(thread_id) AS thread_id
    FROM _thread_roles
    WHERE is_working AND NOT is_autograd
    GROUP BY trace_profile_id, process_no
    HAVING count(*) = 1
)
SELECT
    r.trace_profile_id,  -- The trace as a profile sees it.
    r.thread_id,  -- The thread.
    -- See How.
    CASE WHEN r.is_autograd THEN coalesce(m.thread_id, r.thread_id) ELSE r.thread_id END AS order_thread_id,
    r.process_no  -- Its process within the trace.
FROM _thread_roles AS r
LEFT JOIN mains AS m ON m.trace_profile_id = r.trace_profile_id AND m.process_no = r.process_no
