-- One row: a window of a trace that can be compared: a profiler step, or the whole trace.
-- How: a step ends at the latest where the next one begins, so that no work is in two. The whole trace is from the
-- first operator, call or GPU work to the last.
-- check: unique(trace_id, step)
WITH steps AS (
    SELECT
        trace_id, step, start_ns,
        least(
            end_ns, coalesce(lead(start_ns) OVER (PARTITION BY trace_id ORDER BY start_ns, step), end_ns)
        ) AS end_ns
    FROM profiler_steps
),
busy AS (
    SELECT trace_id, step, max(busy_ns) AS busy_ns FROM step_times GROUP BY trace_id, step
),
worked AS (
    SELECT trace_id, max(busy_ns) AS busy_ns FROM temporal_breakdown GROUP BY trace_id
),
seen AS (
    SELECT e.trace_id, min(e.start_ns) AS start_ns, max(e.end_ns) AS end_ns
    FROM events AS e
    JOIN category_sides AS s ON s.cat = e.cat AND s.is_operator
    WHERE e.duration_ns IS NOT NULL AND e.start_ns IS NOT NULL
    GROUP BY e.trace_id
),
windows AS (
    SELECT s.trace_id, s.step, s.start_ns, s.end_ns, b.busy_ns
    FROM steps AS s
    LEFT JOIN busy AS b ON b.trace_id = s.trace_id AND b.step = s.step
    UNION ALL
    SELECT
        t.trace_id, CAST(NULL AS BIGINT), coalesce(s.start_ns, t.trace_start_ns), coalesce(s.end_ns, t.trace_end_ns),
        w.busy_ns
    FROM traces AS t
    LEFT JOIN seen AS s ON s.trace_id = t.trace_id
    LEFT JOIN worked AS w ON w.trace_id = t.trace_id
),
earlier AS (
    SELECT
        w.trace_id, w.step,
        sum(least(k.end_ns, w.end_ns) - greatest(k.start_ns, w.start_ns)) AS earlier_ns
    FROM windows AS w
    JOIN kernels AS k ON k.trace_id = w.trace_id AND k.start_ns < w.end_ns AND k.end_ns > w.start_ns
    LEFT JOIN events AS l ON l.trace_id = k.trace_id AND l.event_id = k.launch_event_id
    WHERE l.event_id IS NULL OR l.start_ns < w.start_ns
    GROUP BY w.trace_id, w.step
)
SELECT
    w.trace_id,  -- The trace.
    w.step,  -- Number of the profiler step; NULL for the whole trace.
    w.start_ns,  -- Its start, ns.
    w.end_ns,  -- Its end, ns.
    w.end_ns - w.start_ns AS duration_ns,  -- Its duration, ns.
    -- Time in which its device that worked most did anything, ns; NULL where the trace has no GPU work.
    w.busy_ns,
    -- Time in which that did nothing, ns; NULL where the trace has no GPU work.
    CASE WHEN w.busy_ns IS NOT NULL THEN greatest(w.end_ns - w.start_ns - w.busy_ns, 0) END AS idle_ns,
    -- GPU time in it of work that was launched before it, or whose launch is not in the trace, ns.
    TRY_CAST(coalesce(e.earlier_ns, 0) AS BIGINT) AS earlier_ns
FROM windows AS w
LEFT JOIN earlier AS e ON e.trace_id = w.trace_id AND e.step IS NOT DISTINCT FROM w.step
