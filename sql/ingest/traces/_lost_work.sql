-- model: _workless_launches
-- One row: a launch of a kernel or graph whose GPU work is not in the trace.
-- How: select launch calls by name (rules/capture_calls.csv) that have no GPU work with their correlation id. In all
-- traces inspected (V100 to B200, MI250, MI300), launches of kernels and graphs have work, while copies and memsets of
-- 0 bytes have none.
WITH launches AS (
    SELECT
        e.trace_id, e.event_id, e.pid, e.tid, e.start_ns, e.end_ns, e.correlation,
        regexp_replace(e.name, '_(ptsz|ptds|spt|v[0-9]+)$', '') AS name
    FROM events AS e
    WHERE
        contains(e.name, 'Launch') AND e.correlation > 0 AND e.start_ns IS NOT NULL AND e.duration_ns IS NOT NULL
        AND regexp_matches(e.cat, '_(runtime|driver)$')
),
work AS (
    SELECT e.trace_id, e.correlation
    FROM events AS e
    JOIN category_sides AS s ON s.cat = e.cat AND s.side = 'gpu'
    WHERE e.correlation > 0
)
SELECT
    l.trace_id,  -- The trace.
    l.event_id,  -- The call.
    l.pid,  -- Its process.
    l.tid,  -- Its thread.
    l.start_ns,  -- Its start, ns.
    l.end_ns  -- Its end, ns.
FROM launches AS l
LEFT JOIN capture_calls AS r ON r.name = l.name AND r.role = 'kernel'
WHERE
    (r.name IS NOT NULL OR contains(l.name, 'GraphLaunch'))
    AND NOT EXISTS (SELECT 1 FROM work AS w WHERE w.trace_id = l.trace_id AND w.correlation = l.correlation);

-- model: _lost_work
-- One row: a trace with launches without GPU work or, if step is set, a profiler step with such launches.
-- How: the work of a launch was lost if its thread later launched work that is in the trace (a stream runs in order),
-- or if its process later waited for its device. Any other launch counts as at the end, because its work runs after the
-- trace, unless the profiler lost it. Launches during the capture of a graph have no work and are excluded. A trace
-- without any GPU work has no rows, because GPU work was not recorded. For each kernel with correlation id 0, and for
-- each kernel beyond the first with the id of a launch outside graphs, a launch counts as not linked rather than lost.
-- The reason is that roctracer writes both (its issue 100, Kineto's PR 1416).
WITH calls AS (
    SELECT
        e.trace_id, e.event_id, e.pid, e.tid, e.start_ns, e.end_ns, e.correlation,
        regexp_replace(e.name, '_(ptsz|ptds|spt|v[0-9]+)$', '') AS name
    FROM events AS e
    WHERE regexp_matches(e.cat, '_(runtime|driver)$') AND e.duration_ns IS NOT NULL AND e.start_ns IS NOT NULL
),
work AS (
    SELECT DISTINCT e.trace_id, e.correlation
    FROM events AS e
    JOIN category_sides AS s ON s.cat = e.cat AND s.side = 'gpu'
    WHERE e.correlation > 0
),
working AS (
    SELECT c.trace_id, c.pid, c.tid, c.start_ns, c.name
    FROM calls AS c
    JOIN work AS w ON w.trace_id = c.trace_id AND w.correlation = c.correlation
),
last_working AS (
    SELECT trace_id, pid, tid, max(start_ns) AS start_ns
    FROM working
    GROUP BY trace_id, pid, tid
),
last_waits AS (
    SELECT c.trace_id, c.pid, max(c.start_ns) AS start_ns
    FROM calls AS c
    JOIN call_roles AS r ON r.profile = 'default' AND r.role = 'waits_for_device' AND r.name = c.name
    GROUP BY c.trace_id, c.pid
),
-- If a capture began before the trace, its end makes the sum negative.
marks AS (
    SELECT c.trace_id, c.pid, c.end_ns AS at_ns, 1 AS change, CAST(NULL AS BIGINT) AS event_id
    FROM calls AS c
    JOIN capture_calls AS r ON r.name = c.name AND r.role = 'begin'
    UNION ALL
    SELECT c.trace_id, c.pid, c.start_ns, -1, NULL
    FROM calls AS c
    JOIN capture_calls AS r ON r.name = c.name AND r.role = 'end'
    UNION ALL
    SELECT trace_id, pid, start_ns, 0, event_id FROM _workless_launches
),
summed AS (
    SELECT
        *,
        sum(change) OVER (
            PARTITION BY trace_id, pid ORDER BY at_ns, change DESC ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        ) AS n_open
    FROM marks
),
least_open AS (
    SELECT trace_id, pid, least(min(n_open), 0) AS n_open
    FROM summed
    GROUP BY trace_id, pid
),
workless AS (
    SELECT
        l.trace_id, l.start_ns,
        coalesce(l.start_ns < t.start_ns OR l.end_ns <= d.start_ns, FALSE) AS is_lost
    FROM _workless_launches AS l
    JOIN summed AS s ON s.trace_id = l.trace_id AND s.event_id = l.event_id
    JOIN least_open AS o ON o.trace_id = l.trace_id AND o.pid IS NOT DISTINCT FROM l.pid
    LEFT JOIN last_working AS t
        ON t.trace_id = l.trace_id AND t.pid IS NOT DISTINCT FROM l.pid AND t.tid IS NOT DISTINCT FROM l.tid
    LEFT JOIN last_waits AS d ON d.trace_id = l.trace_id AND d.pid IS NOT DISTINCT FROM l.pid
    WHERE s.n_open = o.n_open AND l.trace_id IN (SELECT w.trace_id FROM work AS w)
),
counted AS (
    SELECT trace_id, count(*) AS n, count(*) FILTER (WHERE is_lost) AS n_lost
    FROM workless
    GROUP BY trace_id
),
-- Kernels that may be the work of launches without linked work.
unlinked AS (
    SELECT trace_id, CAST(sum(n) AS BIGINT) AS n
    FROM (
        SELECT trace_id, count(*) AS n
        FROM events
        WHERE cat = 'kernel' AND coalesce(correlation, 0) = 0 AND duration_ns IS NOT NULL AND start_ns IS NOT NULL
        GROUP BY trace_id
        UNION ALL
        SELECT c.trace_id, count(DISTINCT k.event_id) - count(DISTINCT c.correlation) AS n
        FROM calls AS c
        JOIN capture_calls AS r ON r.name = c.name AND r.role = 'kernel'
        JOIN events AS k ON k.trace_id = c.trace_id AND k.correlation = c.correlation AND k.cat = 'kernel'
        WHERE c.correlation > 0 AND k.duration_ns IS NOT NULL AND k.start_ns IS NOT NULL
        GROUP BY c.trace_id
    ) AS of_each_kind
    GROUP BY trace_id
),
launched AS (
    SELECT w.trace_id, count(*) AS n
    FROM working AS w
    LEFT JOIN capture_calls AS r ON r.name = w.name AND r.role = 'kernel'
    WHERE r.name IS NOT NULL OR contains(w.name, 'GraphLaunch')
    GROUP BY w.trace_id
),
steps AS (
    SELECT
        trace_id, TRY_CAST(replace(name, 'ProfilerStep#', '') AS BIGINT) AS step, min(start_ns) AS start_ns,
        max(end_ns) AS end_ns
    FROM events
    WHERE starts_with(name, 'ProfilerStep#') AND cat IN ('user_annotation', 'cpu_op') AND duration_ns IS NOT NULL
    GROUP BY trace_id, TRY_CAST(replace(name, 'ProfilerStep#', '') AS BIGINT)
),
losing_steps AS (
    SELECT s.trace_id, s.step, s.start_ns, s.end_ns, count(*) AS n_lost
    FROM steps AS s
    JOIN workless AS l ON l.trace_id = s.trace_id AND l.start_ns >= s.start_ns AND l.start_ns < s.end_ns
    WHERE l.is_lost AND s.step IS NOT NULL
    GROUP BY s.trace_id, s.step, s.start_ns, s.end_ns
),
working_steps AS (
    SELECT DISTINCT s.trace_id, s.step
    FROM losing_steps AS s
    JOIN working AS w ON w.trace_id = s.trace_id AND w.start_ns >= s.start_ns AND w.start_ns < s.end_ns
)
SELECT
    c.trace_id,  -- The trace.
    CAST(NULL AS BIGINT) AS step,  -- The profiler step; NULL for the whole trace.
    c.n + coalesce(l.n, 0) AS n_launches,  -- Launches of kernels and graphs.
    greatest(c.n_lost - coalesce(u.n, 0), 0) AS n_lost,  -- Launches whose work was lost.
    least(c.n_lost, coalesce(u.n, 0)) AS n_unlinked,  -- Launches whose work is in the trace, but not linked to them.
    c.n - c.n_lost AS n_at_end  -- Launches at the end of the trace, without work.
FROM counted AS c
LEFT JOIN launched AS l ON l.trace_id = c.trace_id
LEFT JOIN unlinked AS u ON u.trace_id = c.trace_id
UNION ALL
SELECT s.trace_id, s.step, s.n_lost, s.n_lost, 0, 0
FROM losing_steps AS s
LEFT JOIN working_steps AS w ON w.trace_id = s.trace_id AND w.step = s.step
WHERE w.step IS NULL;
