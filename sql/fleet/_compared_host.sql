-- One row: events of the host in a step of a trace that share a name: their own time, without that of events inside.
-- How: between two starts or ends on a thread, time belongs to the event on top of its stack; so the rows of a trace
-- add up to the time in which its threads had any event. Depth is a running sum, as in call_stacks, and so is the order
-- at equal times. Where a thread has Python functions, they own its time, and annotations do not: those begin inside of
-- the function that opens them and end in the one that closes them, so they do not nest.
-- Numbers of steps and addresses are left out of names: they differ from run to run.
-- check: unique(trace_id, step, cat, name)
WITH cpu AS (
    SELECT
        e.trace_id, e.pid, e.tid, e.event_id, e.cat, e.start_ns, greatest(e.duration_ns, 0) AS duration_ns,
        e.cat = 'user_annotation' AND bool_or(e.cat = 'python_function') OVER (PARTITION BY e.trace_id, e.pid, e.tid)
            AS is_beside
    FROM events AS e
    LEFT JOIN category_sides AS s ON s.cat = e.cat
    WHERE e.duration_ns IS NOT NULL AND e.start_ns IS NOT NULL AND coalesce(s.side, 'cpu') = 'cpu'
),
marks AS (
    SELECT
        trace_id, pid, tid, event_id, 1 AS change, start_ns AS at_ns,
        CASE WHEN duration_ns = 0 THEN 2 ELSE 1 END AS turn, -duration_ns AS by_length, event_id AS by_place
    FROM cpu
    WHERE NOT coalesce(is_beside, FALSE)
    UNION ALL
    SELECT
        trace_id, pid, tid, event_id, -1, start_ns + duration_ns, CASE WHEN duration_ns = 0 THEN 2 ELSE 0 END,
        duration_ns, CASE WHEN duration_ns = 0 THEN event_id ELSE -event_id END
    FROM cpu
    WHERE NOT coalesce(is_beside, FALSE)
),
ordered AS (
    SELECT
        trace_id, pid, tid, event_id, change, at_ns,
        row_number() OVER thread AS ordinal,
        sum(change) OVER (thread ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS open_after,
        lead(at_ns) OVER thread - at_ns AS until_next_ns
    FROM marks
    WINDOW thread AS (PARTITION BY trace_id, pid, tid ORDER BY at_ns, turn, by_length, by_place, change DESC)
),
-- The event on top is the last that reached its depth: marks of a depth with the same number of starts by then belong
-- to one event. DuckDB's last_value with IGNORE NULLS would step back to that start for each mark anew.
topped AS (
    SELECT
        trace_id, pid, tid, open_after, event_id, change, until_next_ns,
        count(CASE WHEN change = 1 THEN 1 END) OVER (
            PARTITION BY trace_id, pid, tid, open_after ORDER BY ordinal
            ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        ) AS nth_at_depth
    FROM ordered
    WHERE open_after > 0
),
own AS (
    SELECT
        trace_id, max(CASE WHEN change = 1 THEN event_id END) AS event_id, sum(until_next_ns) AS self_ns
    FROM topped
    GROUP BY trace_id, pid, tid, open_after, nth_at_depth
),
named AS (
    SELECT
        e.trace_id, e.cat, e.start_ns, o.self_ns,
        regexp_replace(
            CASE
                WHEN starts_with(e.name, 'ProfilerStep#') THEN 'ProfilerStep' ELSE coalesce(e.name, '(no name)')
            END,
            ' at 0x[0-9a-f]+', '', 'g'
        ) AS name
    FROM own AS o
    JOIN events AS e ON e.trace_id = o.trace_id AND e.event_id = o.event_id
)
SELECT
    o.trace_id,  -- The trace.
    s.step,  -- Number of the profiler step in which they started; NULL outside of steps.
    o.cat,  -- cpu_op, cuda_runtime, user_annotation, python_function, …; NULL where they have none.
    o.name,  -- Their name.
    count(*) AS n,  -- How many.
    TRY_CAST(sum(o.self_ns) AS BIGINT) AS self_ns  -- Their own time, ns.
FROM named AS o
LEFT JOIN _compared_windows AS s
    ON s.trace_id = o.trace_id AND s.step IS NOT NULL AND o.start_ns >= s.start_ns AND o.start_ns < s.end_ns
GROUP BY o.trace_id, s.step, o.cat, o.name
