-- One row: a CPU event of a run's trace, and the task that it belongs to.
-- How: a task owns the events that started during one of its spans. An event on another thread belongs to the task that
-- the thread works for, if the thread runs backward operators. That task is one of the process's spans open at that
-- time. Spans in the iteration of the last forward operator whose derivative the thread computed come first, then the
-- span whose own thread has been without an operator or call for longest.
-- scope: lake
WITH ran AS (
    SELECT DISTINCT run_id, trace_id FROM schedule_spans
),
host AS (
    SELECT
        e.trace_id, e.event_id, e.pid, e.tid, e.start_ns, e.start_ns + greatest(e.duration_ns, 0) AS end_ns,
        coalesce(c.is_operator, FALSE) AS is_work
    FROM events AS e
    JOIN ran AS r ON r.trace_id = e.trace_id
    LEFT JOIN category_sides AS c ON c.cat = e.cat
    WHERE e.ph = 'X' AND e.duration_ns IS NOT NULL AND coalesce(c.side, 'cpu') = 'cpu'
),
own AS (
    SELECT h.trace_id, h.event_id, s.event_id AS span_id, s.iteration
    FROM host AS h
    JOIN schedule_spans AS s
        ON s.trace_id = h.trace_id AND s.pid = h.pid AND s.tid = h.tid AND h.start_ns >= s.start_ns
            AND h.start_ns < s.start_ns + s.duration_ns
    QUALIFY row_number() OVER (PARTITION BY h.trace_id, h.event_id ORDER BY s.start_ns DESC, s.event_id DESC) = 1
),
-- Backward operators, with the iteration of the task that ran their forward operators.
backward AS (
    SELECT h.trace_id, h.pid, h.tid, h.start_ns, max(o.iteration) AS iteration
    FROM backward_links AS b
    JOIN host AS h ON h.trace_id = b.trace_id AND h.event_id = b.backward_event_id
    LEFT JOIN own AS o ON o.trace_id = b.trace_id AND o.event_id = b.forward_event_id
    GROUP BY h.trace_id, h.pid, h.tid, h.start_ns
),
autograd_threads AS (
    SELECT DISTINCT trace_id, pid, tid FROM backward
),
linked AS (
    SELECT
        trace_id, pid, tid, start_ns, iteration,
        row_number() OVER (PARTITION BY trace_id, pid, tid ORDER BY start_ns, iteration) AS ordinal
    FROM backward
    WHERE iteration IS NOT NULL
),
-- Events of threads that run backward operators but no task, each after the linked backward operators that precede it.
steps AS (
    SELECT trace_id, pid, tid, start_ns, 0 AS turn, NULL AS event_id
    FROM linked
    UNION ALL
    SELECT h.trace_id, h.pid, h.tid, h.start_ns, 1 AS turn, h.event_id
    FROM host AS h
    JOIN autograd_threads AS b ON b.trace_id = h.trace_id AND b.pid = h.pid AND b.tid = h.tid
    LEFT JOIN own AS o ON o.trace_id = h.trace_id AND o.event_id = h.event_id
    WHERE o.event_id IS NULL
),
counted AS (
    SELECT
        trace_id, pid, tid, start_ns, event_id,
        count(CASE WHEN turn = 0 THEN 1 END) OVER (
            PARTITION BY trace_id, pid, tid ORDER BY start_ns, turn ROWS UNBOUNDED PRECEDING
        ) AS n_linked
    FROM steps
),
numbered AS (
    SELECT c.trace_id, c.pid, c.start_ns, c.event_id, l.iteration
    FROM counted AS c
    LEFT JOIN linked AS l
        ON l.trace_id = c.trace_id AND l.pid = c.pid AND l.tid = c.tid AND l.ordinal = c.n_linked
    WHERE c.event_id IS NOT NULL
),
-- The spans open at these events, after the operators and calls of the spans' threads.
reached AS (
    SELECT
        n.trace_id, s.pid, s.tid, n.start_ns, 1 AS turn, NULL AS end_ns, n.event_id, s.event_id AS span_id,
        s.start_ns AS span_start_ns, coalesce(s.iteration = n.iteration, FALSE) AS is_same_iteration
    FROM numbered AS n
    JOIN schedule_spans AS s
        ON s.trace_id = n.trace_id AND s.pid = n.pid AND n.start_ns >= s.start_ns
            AND n.start_ns < s.start_ns + s.duration_ns
    UNION ALL
    SELECT trace_id, pid, tid, start_ns, 0, end_ns, NULL, NULL, NULL, NULL
    FROM host
    WHERE is_work
),
candidates AS (
    SELECT
        trace_id, event_id, span_id, span_start_ns, is_same_iteration,
        max(end_ns) OVER (
            PARTITION BY trace_id, pid, tid ORDER BY start_ns, turn ROWS UNBOUNDED PRECEDING
        ) AS busy_until_ns
    FROM reached
),
caller AS (
    SELECT trace_id, event_id, span_id
    FROM candidates
    WHERE event_id IS NOT NULL
    QUALIFY
        row_number() OVER (
            PARTITION BY trace_id, event_id
            ORDER BY
                is_same_iteration DESC, greatest(coalesce(busy_until_ns, span_start_ns), span_start_ns), span_id
        ) = 1
),
owned AS (
    SELECT o.trace_id, o.event_id, s.task
    FROM own AS o
    JOIN schedule_spans AS s ON s.trace_id = o.trace_id AND s.event_id = o.span_id
    UNION ALL
    SELECT c.trace_id, c.event_id, s.task
    FROM caller AS c
    JOIN schedule_spans AS s ON s.trace_id = c.trace_id AND s.event_id = c.span_id
)
SELECT
    trace_id,  -- Trace of the run.
    event_id,  -- The event.
    task  -- The task.
FROM owned
