-- One row: events of the host in a step of a trace that share a name: their own time, without that of events inside.
-- How: duration less that of the events that ran directly inside, as call_stacks nests them; so the rows of a trace add
-- up to the outermost events of all its threads. Numbers of steps and addresses are left out of names: they differ
-- from run to run.
-- check: unique(trace_id, step, cat, name)
WITH inside AS (
    SELECT c.trace_id, c.parent_event_id AS event_id, sum(greatest(e.duration_ns, 0)) AS duration_ns
    FROM call_stacks AS c
    JOIN events AS e ON e.trace_id = c.trace_id AND e.event_id = c.event_id
    WHERE c.parent_event_id IS NOT NULL
    GROUP BY c.trace_id, c.parent_event_id
),
own AS (
    SELECT
        e.trace_id, e.cat, e.start_ns, greatest(e.duration_ns, 0) - coalesce(i.duration_ns, 0) AS self_ns,
        regexp_replace(
            CASE
                WHEN starts_with(e.name, 'ProfilerStep#') THEN 'ProfilerStep' ELSE coalesce(e.name, '(no name)')
            END,
            ' at 0x[0-9a-f]+', '', 'g'
        ) AS name
    FROM call_stacks AS c
    JOIN events AS e ON e.trace_id = c.trace_id AND e.event_id = c.event_id
    LEFT JOIN inside AS i ON i.trace_id = c.trace_id AND i.event_id = c.event_id
)
SELECT
    o.trace_id,  -- The trace.
    s.step,  -- Number of the profiler step in which they started; NULL outside of steps.
    o.cat,  -- cpu_op, cuda_runtime, user_annotation, python_function, …; NULL where they have none.
    o.name,  -- Their name.
    count(*) AS n,  -- How many.
    TRY_CAST(sum(o.self_ns) AS BIGINT) AS self_ns  -- Their own time, ns.
FROM own AS o
LEFT JOIN _compared_windows AS s
    ON s.trace_id = o.trace_id AND s.step IS NOT NULL AND o.start_ns >= s.start_ns AND o.start_ns < s.end_ns
GROUP BY o.trace_id, s.step, o.cat, o.name
