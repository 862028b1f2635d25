-- One row: a cause of a window's length. The rows of a window have all of its time.
-- How: the time of the critical path by what it was spent on (the kind of each edge, the names around it, rules in
-- cause_rules), and the graph retimed without it. Windows that the path covers (profile default).
-- check: unique(trace_id, window_id, cause, name)
WITH totals AS (
    SELECT window_no, sum(duration_ns) AS duration_ns
    FROM _cause_rows
    GROUP BY window_no
),
named AS (
    SELECT
        r.*, w.trace_id, w.window_id,
        CASE
            WHEN r.named_after = 0 THEN coalesce(n.name, '')
            WHEN r.named_after = 1 THEN 'outside operators, thread ' || e.tid
            WHEN r.named_after = 2 THEN 'stream ' || CAST(r.number AS VARCHAR)
            ELSE 'GPU work from before the window'
        END AS name
    FROM _cause_rows AS r
    JOIN critical_path_windows AS w ON w.window_no = r.window_no
    LEFT JOIN _event_names AS n ON n.name_no = CASE WHEN r.named_after = 0 THEN r.number END
    LEFT JOIN events AS e ON e.trace_id = w.trace_id AND e.event_id = r.event_id
)
SELECT
    n.trace_id,  -- The trace.
    n.window_id,  -- The window: full, or a step.
    c.cause,  -- The cause, in cause_kinds: data_loading, host_operators, gpu_computing, …
    n.name,  -- The operator, kernel, call, annotation, Python function, thread or stream.
    n.duration_ns,  -- Its time on the path, ns.
    -- The same in percent of the window; the rows of a window sum to 100.
    100e0 * n.duration_ns / nullif(t.duration_ns, 0) AS share_percent,
    n.idle_ns AS gpu_idle_ns,  -- The part of it in which no GPU work ran, ns.
    -- What the window is shorter without it, ns: retimed; NULL where it was not computed (small shares).
    n.saves_ns,
    n.halved_saves_ns,  -- The same with half of it; NULL where it was not computed, or there is no half.
    n.cause_saves_ns,  -- What the window is shorter without all rows of the cause, ns.
    n.times,  -- Events with such time.
    n.event_id,  -- The one with the most of it.
    2 * n.inferred_ns >= n.duration_ns AS inferred  -- It follows mostly from waits that no event shows.
FROM named AS n
JOIN totals AS t ON t.window_no = n.window_no
JOIN cause_kinds AS c ON c.cause_no = n.cause_no
