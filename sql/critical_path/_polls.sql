-- One row: a call that asks whether GPU work has ended, with those before it on its thread that nothing parts it from.
-- How: on threads that do more than ask. Whatever else begins or ends on the thread parts two runs; a call that has GPU
-- work of its own, by its correlation id, is none that asks.
WITH pollers AS (
    SELECT e.trace_profile_id, e.thread_id, min(r.process_no) AS process_no
    FROM _loaded_events AS e
    JOIN _thread_roles AS r ON r.trace_profile_id = e.trace_profile_id AND r.thread_id = e.thread_id
    WHERE e.is_poll AND NOT r.only_polls
    GROUP BY e.trace_profile_id, e.thread_id
),
launching AS (
    SELECT DISTINCT h.trace_profile_id, h.launch_event_id
    FROM _gpu_history AS h
    JOIN pollers AS p ON p.trace_profile_id = h.trace_profile_id
    WHERE h.launch_event_id IS NOT NULL AND h.scope_no < 0
),
calls AS (
    SELECT
        e.trace_profile_id, e.thread_id, e.event_id, e.start_ns, e.start_ns + e.duration_ns AS end_ns,
        e.is_poll AND l.launch_event_id IS NULL AS is_poll,
        p.process_no
    FROM _loaded_events AS e
    JOIN pollers AS p ON p.trace_profile_id = e.trace_profile_id AND p.thread_id = e.thread_id
    LEFT JOIN launching AS l ON l.trace_profile_id = e.trace_profile_id AND l.launch_event_id = e.event_id
    WHERE e.is_operator AND e.duration_ns >= 0
),
runs AS (
    SELECT
        trace_profile_id, thread_id, event_id, start_ns, end_ns, is_poll, process_no,
        sum(CASE WHEN is_poll THEN 0 ELSE 1 END) OVER (
            PARTITION BY trace_profile_id, thread_id ORDER BY start_ns, turn, event_id
            ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        ) AS run
    FROM (
        SELECT *, 1 AS turn FROM calls
        UNION ALL
        SELECT trace_profile_id, thread_id, event_id, end_ns, end_ns, FALSE, process_no, 0 FROM calls WHERE NOT is_poll
    ) AS marks
)
SELECT
    trace_profile_id,  -- The trace as a profile sees it.
    thread_id,  -- The thread.
    process_no,  -- Its process.
    run,  -- Number of the run on the thread.
    event_id,  -- The call.
    start_ns,  -- Its start, ns.
    end_ns,  -- Its end, ns.
    start_ns - lag(end_ns) OVER in_run AS pause_ns,  -- Time since the one before it in the run ended, ns.
    lag(start_ns) OVER in_run AS before_ns,  -- Start of that, ns.
    lead(event_id) OVER in_run IS NULL AS is_last  -- The run's last.
FROM runs
WHERE is_poll
WINDOW in_run AS (PARTITION BY trace_profile_id, thread_id, run ORDER BY start_ns, event_id)
