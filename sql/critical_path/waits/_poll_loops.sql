-- One row: a call that asks whether GPU work has ended, in a loop of such calls that waits for the end.
-- How: a loop is a run of such calls (poll_runs), as in `while not event.query(): pass`. The loop waited for work
-- before an event record, if that work ended between the last two calls, within 2 us (disagreement of clocks). The
-- awaited work is the last work launched before the event that the thread recorded last or, in a long loop, before an
-- earlier event. Allocators query many events in a row, and a watchdog queries once a second. Neither waits, so a run
-- without such awaited work is not a loop. Neither is any run on a thread that spends most of its polling time in such
-- runs. On a thread with loops, a single call that finds the work done counts as a loop, too, although it did not have
-- to wait. Only in profiles that infer waits.
WITH pollers AS (
    SELECT e.trace_profile_id, e.thread_id, min(r.process_no) AS process_no
    FROM _loaded_events AS e
    JOIN _profiles AS p ON p.trace_profile_id = e.trace_profile_id AND p.infer_waits
    JOIN _thread_roles AS r ON r.trace_profile_id = e.trace_profile_id AND r.thread_id = e.thread_id
    WHERE e.is_poll AND NOT r.only_polls
    GROUP BY e.trace_profile_id, e.thread_id
),
polling_launches AS (
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
    LEFT JOIN polling_launches AS l ON l.trace_profile_id = e.trace_profile_id AND l.launch_event_id = e.event_id
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
),
-- One row: a call that asks whether GPU work has ended, and its run of successive such calls on the thread.
-- How: only threads that also do something other than query. Any other operator or call that begins or ends on the
-- thread separates two runs. A call with GPU work, by its correlation id, is not a query.
polls AS (
    SELECT
        trace_profile_id,  -- The trace as a profile sees it.
        thread_id,  -- The thread.
        process_no,  -- Its process.
        run,  -- Number of the run on the thread.
        event_id,  -- The call.
        start_ns,  -- Its start, ns.
        end_ns,  -- Its end, ns.
        start_ns - lag(end_ns) OVER in_run AS pause_ns,  -- Time since the end of the preceding call of the run, ns.
        lag(start_ns) OVER in_run AS before_ns,  -- Start of the preceding call, ns.
        lead(event_id) OVER in_run IS NULL AS is_last  -- The last call of the run.
    FROM runs
    WHERE is_poll
    WINDOW in_run AS (PARTITION BY trace_profile_id, thread_id, run ORDER BY start_ns, event_id)
),
sums AS (
    SELECT
        trace_profile_id, thread_id, min(process_no) AS process_no, run, count(*) AS n_polls,
        min(start_ns) AS first_ns, max(CASE WHEN is_last THEN event_id END) AS last_event_id, max(end_ns) AS end_ns,
        max(CASE WHEN is_last THEN before_ns END) AS before_ns, max(pause_ns) AS pause_ns,
        min(pause_ns) AS least_pause_ns
    FROM polls
    GROUP BY trace_profile_id, thread_id, run
),
-- One row: a run of calls that ask whether GPU work has ended, one after another (polls).
-- How: a run may be a loop that waits if it has at least two calls, no call begins before the preceding call has ended,
-- and at most 2 ms pass between two calls (50 us in a run of two). A run of three calls, or of two calls that takes
-- over 20 us, is evidence of the purpose of its thread's queries.
poll_runs AS (
    SELECT
        trace_profile_id,  -- The trace as a profile sees it.
        thread_id,  -- The thread.
        process_no,  -- Its process.
        run,  -- Number of the run on the thread.
        n_polls,  -- Number of calls.
        last_event_id,  -- The last of them.
        first_ns,  -- Start of the first, ns.
        before_ns,  -- Start of the last but one, ns.
        end_ns,  -- End of the last, ns.
        -- The run may be a loop that waits.
        n_polls > 1 AND least_pause_ns >= 0
        AND pause_ns <= CASE
            WHEN n_polls > 2 THEN threshold('poll_pause_ns') ELSE threshold('poll_pause_of_two_ns')
        END AS may_wait,
        -- The run is evidence of the purpose of its thread's queries.
        n_polls > 2 OR n_polls = 2 AND end_ns - first_ns > threshold('polls_of_two_ns') AS is_evidence
    FROM sums
),
polled AS (
    SELECT DISTINCT trace_profile_id FROM poll_runs WHERE may_wait AND is_evidence
),
-- The work of each launch that ends last.
work AS (
    SELECT
        h.trace_profile_id, h.launch_event_id, h.event_id, h.end_ns, h.launch_ts_ns,
        row_number() OVER (
            PARTITION BY h.trace_profile_id, h.launch_event_id ORDER BY h.end_ns DESC, h.event_id DESC
        ) AS place
    FROM _gpu_history AS h
    JOIN polled AS p ON p.trace_profile_id = h.trace_profile_id
    WHERE h.launch_event_id IS NOT NULL AND h.scope_no < 0
),
launched AS (
    SELECT trace_profile_id, launch_event_id, event_id, end_ns, launch_ts_ns FROM work WHERE place = 1
),
launches AS (
    SELECT trace_profile_id, thread_id, start_ns AS at_ns, max(work_event_id) AS work_event_id
    FROM (
        SELECT e.trace_profile_id, e.thread_id, e.start_ns, l.event_id AS work_event_id
        FROM _loaded_events AS e
        JOIN launched AS l ON l.trace_profile_id = e.trace_profile_id AND l.launch_event_id = e.event_id
    ) AS calls_of_work
    GROUP BY trace_profile_id, thread_id, start_ns
),
-- As in likely_waits (_inferred_waits): the last launch of a thread before it recorded an event, and before a loop
-- began.
records AS (
    SELECT e.trace_profile_id, e.thread_id, e.start_ns AS at_ns, l.work_event_id
    FROM _loaded_events AS e
    ASOF JOIN launches AS l
        ON l.trace_profile_id = e.trace_profile_id AND l.thread_id = e.thread_id AND l.at_ns <= e.start_ns
    WHERE e.is_record
),
recording AS (
    SELECT
        p.trace_profile_id, p.thread_id, p.run, l.work_event_id AS launched_event_id,
        r.work_event_id AS recorded_event_id
    FROM poll_runs AS p
    ASOF LEFT JOIN launches AS l
        ON l.trace_profile_id = p.trace_profile_id AND l.thread_id = p.thread_id AND l.at_ns <= p.first_ns
    ASOF LEFT JOIN records AS r
        ON r.trace_profile_id = p.trace_profile_id AND r.thread_id = p.thread_id AND r.at_ns <= p.first_ns
),
recorded AS (
    SELECT DISTINCT m.trace_profile_id, t.process_no, m.work_event_id AS event_id, w.end_ns, w.launch_ts_ns
    FROM records AS m
    JOIN _thread_roles AS t ON t.trace_profile_id = m.trace_profile_id AND t.thread_id = m.thread_id
    JOIN launched AS w ON w.trace_profile_id = m.trace_profile_id AND w.event_id = m.work_event_id
),
-- Long loops, joined by parts of time longer than the time between their last two calls, as in _clip.
long_runs AS (
    SELECT
        trace_profile_id, process_no, thread_id, run, first_ns, before_ns - threshold('clock_disagrees_ns') AS after_ns,
        end_ns + threshold('clock_disagrees_ns') AS until_ns,
        CAST(pow(
            2, ceil(ln(greatest(end_ns - before_ns + 2 * threshold('clock_disagrees_ns'), 1)) / ln(2)) + 1
        ) AS BIGINT) AS part_ns
    FROM poll_runs
    WHERE may_wait AND n_polls >= threshold('long_loop_polls') AND end_ns - first_ns >= threshold('long_loop_ns')
),
run_parts AS (
    SELECT *, after_ns // part_ns AS part FROM long_runs
    UNION ALL
    SELECT *, until_ns // part_ns AS part FROM long_runs WHERE until_ns // part_ns > after_ns // part_ns
),
run_lengths AS (
    SELECT DISTINCT trace_profile_id, part_ns FROM long_runs
),
recorded_parts AS (
    SELECT r.*, l.part_ns, r.end_ns // l.part_ns AS part
    FROM recorded AS r
    JOIN run_lengths AS l ON l.trace_profile_id = r.trace_profile_id
),
-- The candidates for the awaited work, in this order: before the event recorded last, the last launch (loops poll
-- streams, too), before any event.
asked AS (
    SELECT trace_profile_id, thread_id, run, recorded_event_id AS source_event_id, 1 AS turn
    FROM recording
    WHERE recorded_event_id IS NOT NULL
    UNION ALL
    SELECT trace_profile_id, thread_id, run, launched_event_id, 2
    FROM recording
    WHERE launched_event_id IS NOT NULL
    UNION ALL
    SELECT l.trace_profile_id, l.thread_id, l.run, r.event_id, 3
    FROM run_parts AS l
    JOIN recorded_parts AS r
        ON r.trace_profile_id = l.trace_profile_id AND r.process_no = l.process_no AND r.part_ns = l.part_ns
            AND r.part = l.part
    WHERE r.end_ns > l.after_ns AND r.end_ns <= l.until_ns AND r.launch_ts_ns < l.first_ns
),
-- Computed here, because DuckDB would compare every run with every launch if this were a join condition.
ended AS (
    SELECT
        a.trace_profile_id, a.thread_id, a.run, a.source_event_id, a.turn, w.end_ns AS source_end_ns,
        CASE WHEN l.may_wait AND w.end_ns > l.before_ns - threshold('clock_disagrees_ns') THEN 0 ELSE 1 END AS is_idle,
        CASE WHEN w.end_ns <= l.end_ns + threshold('clock_disagrees_ns') THEN 1 ELSE 2 END AS choosing
    FROM asked AS a
    JOIN poll_runs AS l ON l.trace_profile_id = a.trace_profile_id AND l.thread_id = a.thread_id AND l.run = a.run
    JOIN launched AS w ON w.trace_profile_id = a.trace_profile_id AND w.event_id = a.source_event_id
),
ranked AS (
    SELECT
        *,
        choosing * row_number() OVER (
            PARTITION BY trace_profile_id, thread_id, run
            ORDER BY choosing, is_idle, turn, source_end_ns DESC, source_event_id DESC
        ) AS choice
    FROM ended
),
threads_asking AS (
    SELECT
        l.trace_profile_id, l.thread_id,
        sum(CASE WHEN l.is_evidence THEN l.end_ns - l.first_ns ELSE 0 END) AS asking_ns,
        sum(CASE WHEN l.is_evidence AND r.is_idle = 0 THEN l.end_ns - l.first_ns ELSE 0 END) AS waiting_ns
    FROM poll_runs AS l
    LEFT JOIN ranked AS r
        ON r.trace_profile_id = l.trace_profile_id AND r.thread_id = l.thread_id AND r.run = l.run AND r.choice = 1
    GROUP BY l.trace_profile_id, l.thread_id
),
chosen AS (
    SELECT r.*, r.is_idle = 0 AS has_waited
    FROM ranked AS r
    JOIN threads_asking AS t ON t.trace_profile_id = r.trace_profile_id AND t.thread_id = r.thread_id
    WHERE r.choice = 1 AND t.waiting_ns > 0 AND 100 * t.waiting_ns >= threshold('poll_waiting_percent') * t.asking_ns
)
SELECT
    p.trace_profile_id,  -- The trace as a profile sees it.
    p.event_id,  -- The call that asks.
    l.last_event_id,  -- The loop's last call, which finds the work done.
    c.source_event_id,  -- GPU work that the loop waited for.
    c.source_end_ns,  -- Its end, ns.
    c.has_waited  -- FALSE: the loop's first call found the work done.
FROM chosen AS c
JOIN poll_runs AS l ON l.trace_profile_id = c.trace_profile_id AND l.thread_id = c.thread_id AND l.run = c.run
JOIN polls AS p ON p.trace_profile_id = c.trace_profile_id AND p.thread_id = c.thread_id AND p.run = c.run
WHERE c.has_waited OR l.n_polls = 1 AND c.turn = 1
