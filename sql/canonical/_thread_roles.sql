-- One row: a CPU thread of a trace with operators, calls or annotations, and its role in a path that covers the window.
-- How: threads that launch GPU work and forward threads (such as the thread of the profiler steps) work. Without GPU
-- work, all threads with operators work.
-- A thread whose only GPU calls ask whether work has ended (NCCL's watchdog) neither hands over nor waits. Calls that
-- do not launch, record or wait (cudaThreadExchangeStreamCaptureMode) do not count.
-- The autograd engine's threads are identified by their names, their operators' names, and the arrows from forward to
-- backward. They work while the thread that called backward waits. If a process has exactly one other working thread,
-- the calls of both threads have a common order.
WITH asked AS (
    SELECT trace_profile_id, trace_id FROM _profiles WHERE covers_window
),
launching AS (
    SELECT DISTINCT l.trace_profile_id, l.launch_event_id
    FROM _links AS l
    JOIN asked AS a ON a.trace_profile_id = l.trace_profile_id
    WHERE l.is_known
),
-- A separate query, because it reads names and finds few events or none.
collectives AS (
    SELECT trace_id, event_id
    FROM events
    WHERE cat = 'user_annotation' AND starts_with(name, 'gloo:')
),
sums AS (
    SELECT
        e.trace_profile_id, e.thread_id, count(*) FILTER (WHERE e.is_operator) AS n_operators,
        count(*) FILTER (WHERE e.is_poll) AS n_polls,
        count(*) FILTER (
            WHERE e.correlation IS NOT NULL AND NOT e.is_blocking AND NOT e.is_poll AND NOT e.is_record
            AND NOT e.is_wait AND NOT e.is_lock AND e.is_operator
        ) AS n_other_calls,
        count(l.launch_event_id) AS n_launches,
        bool_or(e.is_backward) AS is_backward, bool_or(e.is_forward) AS is_forward,
        count(v.event_id) FILTER (WHERE e.is_operator) AS n_collectives
    FROM _loaded_events AS e
    JOIN asked AS a ON a.trace_profile_id = e.trace_profile_id
    LEFT JOIN collectives AS v ON v.trace_id = a.trace_id AND v.event_id = e.event_id
    LEFT JOIN launching AS l ON l.trace_profile_id = e.trace_profile_id AND l.launch_event_id = e.event_id
    WHERE e.side = 'cpu' AND NOT e.is_frame
    GROUP BY e.trace_profile_id, e.thread_id
),
with_work AS (
    SELECT trace_profile_id, sum(n_launches) AS n_launches FROM sums GROUP BY trace_profile_id
),
arrows AS (
    SELECT
        a.trace_profile_id, t.thread_id, count(*) FILTER (WHERE e.ph = 's') AS n_from,
        count(*) FILTER (WHERE e.ph = 'f') AS n_into
    FROM events AS e
    JOIN asked AS a ON a.trace_id = e.trace_id
    JOIN threads AS t ON t.trace_id = e.trace_id AND t.pid = e.pid AND t.tid = e.tid
    WHERE e.cat = 'fwdbwd'
    GROUP BY a.trace_profile_id, t.thread_id
),
roles AS (
    SELECT
        s.trace_profile_id,  -- The trace as a profile sees it.
        s.thread_id,  -- The thread.
        -- Its process within the trace.
        dense_rank() OVER (PARTITION BY s.trace_profile_id ORDER BY t.pid) AS process_no,
        -- The thread works: its events may end the window, and its gaps have owners.
        s.n_launches > 0 OR s.is_forward OR w.n_launches = 0 AND s.n_operators > 0 AS is_working,
        -- Its calls only ask whether GPU work has ended.
        s.n_polls > 0 AND s.n_polls + s.n_other_calls = s.n_operators AND s.n_launches = 0 AS only_polls,
        -- A thread of the autograd engine, which begins when the thread that called backward stops.
        coalesce(
            starts_with(t.thread_name, 'pt_autograd') OR s.is_backward AND NOT s.is_forward
            OR r.n_into > 0 AND r.n_from = 0, FALSE
        ) AS is_autograd,
        coalesce(r.n_from > 0, FALSE) AS calls_backward,  -- Arrows lead from its operators to backward operators.
        -- The thread runs host collectives (Gloo) that another thread has begun.
        s.n_operators > 0 AND s.n_collectives = s.n_operators AS runs_collectives
    FROM sums AS s
    JOIN asked AS a ON a.trace_profile_id = s.trace_profile_id
    JOIN with_work AS w ON w.trace_profile_id = s.trace_profile_id
    JOIN threads AS t ON t.trace_id = a.trace_id AND t.thread_id = s.thread_id
    LEFT JOIN arrows AS r ON r.trace_profile_id = s.trace_profile_id AND r.thread_id = s.thread_id
),
mains AS (
    SELECT trace_profile_id, process_no, min(thread_id) AS thread_id
    FROM roles
    WHERE is_working AND NOT is_autograd
    GROUP BY trace_profile_id, process_no
    HAVING count(*) = 1
)
SELECT
    r.trace_profile_id,  -- The trace as a profile sees it.
    r.thread_id,  -- The thread.
    r.process_no,  -- Its process within the trace.
    r.is_working,  -- The thread works: its events may end the window, and its gaps have owners.
    r.only_polls,  -- Its calls only ask whether GPU work has ended.
    r.is_autograd,  -- A thread of the autograd engine, which begins when the thread that called backward stops.
    r.calls_backward,  -- Arrows lead from its operators to backward operators.
    r.runs_collectives,  -- The thread runs host collectives (Gloo) that another thread has begun.
    -- Thread whose order of calls includes the calls of this thread.
    CASE WHEN r.is_autograd THEN coalesce(m.thread_id, r.thread_id) ELSE r.thread_id END AS order_thread_id
FROM roles AS r
LEFT JOIN mains AS m ON m.trace_profile_id = r.trace_profile_id AND m.process_no = r.process_no
