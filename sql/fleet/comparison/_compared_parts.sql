-- model: _compared_windows
-- One row: a window of a trace that can be compared: a profiler step, or the whole trace.
-- How: step_lengths defines the start and end of a step. Host time from the end of the previous annotation to the end
-- of the step's own annotation belongs to the step, and so does the GPU work launched in that time. The whole trace
-- extends from the first operator, call or GPU activity to the last.
-- scope: trace
-- check: unique(trace_id, step)
WITH busy AS (
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
    SELECT
        s.trace_id, s.step, s.start_ns, s.end_ns, s.host_start_ns, s.host_end_ns, s.host_ns, s.warm_up_times, b.busy_ns
    FROM step_lengths AS s
    LEFT JOIN busy AS b ON b.trace_id = s.trace_id AND b.step = s.step
    UNION ALL
    SELECT
        t.trace_id, CAST(NULL AS BIGINT), coalesce(s.start_ns, t.trace_start_ns), coalesce(s.end_ns, t.trace_end_ns),
        coalesce(s.start_ns, t.trace_start_ns), coalesce(s.end_ns, t.trace_end_ns), CAST(NULL AS BIGINT),
        CAST(NULL AS DOUBLE), w.busy_ns
    FROM traces AS t
    LEFT JOIN seen AS s ON s.trace_id = t.trace_id
    LEFT JOIN worked AS w ON w.trace_id = t.trace_id
),
-- Steps do not overlap. So a kernel overlaps all steps from the first that ends after its start to the last that starts
-- before its end.
steps AS (
    SELECT *, row_number() OVER (PARTITION BY trace_id ORDER BY start_ns) AS place
    FROM windows
    WHERE step IS NOT NULL AND end_ns > start_ns
),
launched AS (
    SELECT k.trace_id, k.start_ns, k.end_ns, l.start_ns AS launch_ns, l.event_id AS launch_id
    FROM kernels AS k
    LEFT JOIN events AS l ON l.trace_id = k.trace_id AND l.event_id = k.launch_event_id
),
spans AS (
    SELECT k.*, f.place AS first_place, t.place AS last_place
    FROM launched AS k
    ASOF JOIN steps AS f ON f.trace_id = k.trace_id AND f.end_ns > k.start_ns
    ASOF JOIN steps AS t ON t.trace_id = k.trace_id AND t.start_ns < k.end_ns
),
spread AS (
    SELECT trace_id, start_ns, end_ns, launch_ns, launch_id, unnest(range(first_place, last_place + 1)) AS place
    FROM spans
),
overlapping AS (
    SELECT
        w.trace_id, w.step, w.host_start_ns, k.launch_ns, k.launch_id,
        least(k.end_ns, w.end_ns) - greatest(k.start_ns, w.start_ns) AS ns
    FROM spread AS k
    JOIN steps AS w ON w.trace_id = k.trace_id AND w.place = k.place
    UNION ALL
    SELECT
        w.trace_id, w.step, w.host_start_ns, k.launch_ns, k.launch_id,
        least(k.end_ns, w.end_ns) - greatest(k.start_ns, w.start_ns)
    FROM windows AS w
    JOIN launched AS k ON k.trace_id = w.trace_id
    WHERE w.step IS NULL AND k.start_ns < w.end_ns AND k.end_ns > w.start_ns
),
earlier AS (
    SELECT trace_id, step, sum(ns) AS earlier_ns
    FROM overlapping
    WHERE launch_id IS NULL OR launch_ns < host_start_ns
    GROUP BY trace_id, step
)
SELECT
    w.trace_id,  -- The trace.
    w.step,  -- Number of the profiler step; NULL for the whole trace.
    w.start_ns,  -- Start of the window, ns.
    w.end_ns,  -- End of the window, ns.
    w.end_ns - w.start_ns AS duration_ns,  -- Length of the window, ns.
    w.host_start_ns,  -- Start of the host time that belongs to the window, ns.
    w.host_end_ns,  -- End of that host time, ns.
    w.host_ns,  -- Duration of the step's annotation on the host, ns; NULL for the whole trace.
    -- Length of a first step relative to the steps after it, as in step_lengths; NULL for other windows.
    w.warm_up_times,
    -- Busy time of the busiest device, ns; NULL where the trace has no GPU work.
    w.busy_ns,
    -- Idle time of the busiest device, ns; NULL where the trace has no GPU work.
    CASE WHEN w.busy_ns IS NOT NULL THEN greatest(w.end_ns - w.start_ns - w.busy_ns, 0) END AS idle_ns,
    -- GPU time in the window of work that was launched before the window, or whose launch is not in the trace, ns.
    TRY_CAST(coalesce(e.earlier_ns, 0) AS BIGINT) AS earlier_ns
FROM windows AS w
LEFT JOIN earlier AS e ON e.trace_id = w.trace_id AND e.step IS NOT DISTINCT FROM w.step;

-- model: _compared_host
-- One row: a category and name of host events in a step of a trace, with their self time.
-- How: between two consecutive starts or ends on a thread, time belongs to the event on top of the stack. So the rows
-- of a trace add up to the time in which its threads had any open event. Depth is a running sum, as in call_stacks. The
-- order at equal times is also as in call_stacks. On a thread with Python functions, annotations own no time, because
-- they do not nest with functions. An annotation begins inside the function that opens it and ends inside the function
-- that closes it. Names contain no step numbers and addresses, because these differ from run to run.
-- scope: trace
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
-- The event on top of the stack is the last that reached its depth. So marks at one depth with the same number of
-- starts so far belong to one event. DuckDB's last_value with IGNORE NULLS would search back to that start for each
-- mark.
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
),
-- The host times of steps do not overlap.
steps AS (
    SELECT trace_id, step, host_start_ns AS from_ns, host_end_ns AS until_ns
    FROM _compared_windows
    WHERE step IS NOT NULL AND host_end_ns > host_start_ns
)
SELECT
    o.trace_id,  -- The trace.
    -- Number of the profiler step in which the events started; NULL outside of steps.
    CASE WHEN o.start_ns < s.until_ns THEN s.step END AS step,
    o.cat,  -- cpu_op, cuda_runtime, user_annotation, python_function, …; NULL if not recorded.
    o.name,  -- Name of the events.
    count(*) AS n,  -- Number of events.
    TRY_CAST(sum(o.self_ns) AS BIGINT) AS self_ns  -- Self time of the events, ns.
FROM named AS o
ASOF LEFT JOIN steps AS s ON s.trace_id = o.trace_id AND s.from_ns <= o.start_ns
GROUP BY o.trace_id, CASE WHEN o.start_ns < s.until_ns THEN s.step END, o.cat, o.name;

-- model: _compared_work
-- One row: a group of GPU activities of a trace with equal step, operator, category, module, input shapes and types,
-- and name.
-- How: kernel_owners determines operator and module. An activity belongs to the step of its launch, or to the step in
-- which it started if the launch is not in the trace. The category is communication for the class COMMUNICATION, else
-- the family of the operator, else the category of the name in rules/kernel_categories.csv.
-- scope: trace
-- check: unique(trace_id, step, operator, category, module, input_dims, input_types, cat, name)
WITH names AS (
    SELECT DISTINCT trace_id, cat, name FROM kernels
),
fitting AS (
    SELECT n.trace_id, n.cat, n.name, r.category
    FROM names AS n
    JOIN kernel_categories AS r ON regexp_matches(n.name, r.name_pattern)
    QUALIFY row_number() OVER (PARTITION BY n.trace_id, n.cat, n.name ORDER BY r.rule_order) = 1
),
work AS (
    SELECT
        k.trace_id, k.cat, coalesce(k.name, '(no name)') AS name, k.duration_ns,
        l.start_ns IS NOT NULL AS by_launch, coalesce(l.start_ns, k.start_ns) AS at_ns,
        CASE
            WHEN o.op IS NOT NULL THEN o.op
            WHEN o.is_replay THEN '(graph replay)'
            WHEN l.event_id IS NULL THEN '(launch not in the trace)'
            ELSE '(no operator)'
        END AS operator,
        o.op IS NOT NULL AS has_operator,
        CASE
            WHEN k.class = 'COMMUNICATION' THEN 'communication'
            ELSE coalesce(w.family, f.family, c.category, 'other')
        END AS category,
        coalesce(o.module, '(no module)') AS module,
        w.dims AS input_dims,
        coalesce(p.args ->> '$."Input type"', p.args ->> '$."Input Type"') AS input_types
    FROM kernels AS k
    JOIN kernel_owners AS o ON o.trace_id = k.trace_id AND o.event_id = k.event_id
    LEFT JOIN events AS l ON l.trace_id = k.trace_id AND l.event_id = k.launch_event_id
    LEFT JOIN op_work AS w ON w.trace_id = o.trace_id AND w.event_id = o.op_event_id
    LEFT JOIN events AS p ON p.trace_id = o.trace_id AND p.event_id = o.op_event_id AND p.cat = 'cpu_op'
    LEFT JOIN op_kinds AS f ON f.op = o.op
    LEFT JOIN fitting AS c
        ON c.trace_id = k.trace_id AND c.cat IS NOT DISTINCT FROM k.cat AND c.name IS NOT DISTINCT FROM k.name
),
-- The host times of steps do not overlap, and neither do the steps themselves.
steps AS (
    SELECT trace_id, step, TRUE AS by_launch, host_start_ns AS from_ns, host_end_ns AS until_ns
    FROM _compared_windows
    WHERE step IS NOT NULL AND host_end_ns > host_start_ns
    UNION ALL
    SELECT trace_id, step, FALSE, start_ns, end_ns
    FROM _compared_windows
    WHERE step IS NOT NULL AND end_ns > start_ns
)
SELECT
    w.trace_id,  -- The trace.
    -- Number of the profiler step; NULL outside of steps.
    CASE WHEN w.at_ns < s.until_ns THEN s.step END AS step,
    w.operator,  -- The operator that launched the activities; in parentheses, the reason why there is none.
    w.has_operator,  -- True if there is an operator.
    w.category,  -- communication, a family of op_kinds (gemm, attention, elementwise, …) or other.
    w.module,  -- Innermost module around the launch, or (no module).
    w.input_dims,  -- Sizes of the operator's inputs, as JSON; NULL where the trace does not record shapes.
    w.input_types,  -- Types of the operator's inputs, as JSON; NULL where the trace does not record them.
    w.cat,  -- kernel, gpu_memcpy or gpu_memset.
    w.name,  -- Name of the kernel, memcpy or memset.
    count(*) AS n,  -- Number of events.
    TRY_CAST(sum(w.duration_ns) AS BIGINT) AS duration_ns  -- Summed duration of the activities, ns.
FROM work AS w
ASOF LEFT JOIN steps AS s
    ON s.trace_id = w.trace_id AND s.by_launch = w.by_launch AND s.from_ns <= w.at_ns
GROUP BY
    w.trace_id, CASE WHEN w.at_ns < s.until_ns THEN s.step END, w.operator, w.has_operator, w.category, w.module,
    w.input_dims, w.input_types, w.cat, w.name;

-- model: _compared_causes
-- One row: a cause of the length of a trace, or of one of its steps, by name.
-- check: unique(trace_id, step, cause, name)
SELECT
    trace_id,  -- The trace.
    CAST(NULL AS BIGINT) AS step,  -- The step; NULL for the whole trace.
    cause,  -- The cause, in cause_kinds.
    name,  -- Name within the cause: the operator, annotation, function, …
    sum(times) AS times,  -- Events with time of this cause; in a step, intervals of the path.
    sum(duration_ns) AS duration_ns  -- Time of the cause on the path, ns.
FROM causes
WHERE window_id = 'full'
GROUP BY trace_id, cause, name
UNION ALL
SELECT trace_id, step, cause, name, n_stretches, duration_ns FROM step_causes;

-- model: _comparison
-- One row: a name in a comparison (with input shapes and types if by `shape`), with its count and time on both sides.
-- How: an outer join of two sums; a missing side counts as 0. The rows of a comparison by `cause` or `owner` add up to
-- the length of its windows. The rows of any other comparison, except by `host`, add up to all GPU time of its windows.
-- check: unique(part, by_what, cat, name, input_dims, input_types)
WITH measured AS (
    SELECT
        c.part, c.by_what, c.side, w.n, w.duration_ns,
        CASE WHEN c.by_what = 'kernel' THEN w.cat WHEN c.by_what = 'work' THEN w.category END AS cat,
        CASE
            WHEN c.by_what IN ('operator', 'shape', 'work') THEN w.operator
            WHEN c.by_what = 'category' THEN w.category
            WHEN c.by_what = 'module' THEN w.module
            ELSE w.name
        END AS name,
        CASE WHEN c.by_what = 'shape' THEN w.input_dims END AS input_dims,
        CASE WHEN c.by_what = 'shape' THEN w.input_types END AS input_types
    FROM compared AS c
    JOIN _compared_work AS w ON w.trace_id = c.trace_id AND (c.step IS NULL OR w.step = c.step)
    WHERE c.by_what NOT IN ('host', 'cause', 'owner')
    UNION ALL
    SELECT
        c.part, c.by_what, c.side, w.times, w.duration_ns, CASE WHEN c.by_what = 'owner' THEN w.cause END,
        CASE WHEN c.by_what = 'owner' THEN w.name ELSE w.cause END, NULL, NULL
    FROM compared AS c
    JOIN _compared_causes AS w ON w.trace_id = c.trace_id AND w.step IS NOT DISTINCT FROM c.step
    WHERE c.by_what IN ('cause', 'owner')
    UNION ALL
    SELECT c.part, c.by_what, c.side, h.n, h.self_ns, h.cat, h.name, NULL, NULL
    FROM compared AS c
    JOIN _compared_host AS h ON h.trace_id = c.trace_id AND (c.step IS NULL OR h.step = c.step)
    WHERE c.by_what = 'host'
),
sides AS (
    SELECT
        part, by_what, cat, name, input_dims, input_types,
        coalesce(sum(n) FILTER (WHERE side = 'control'), 0) AS control_n,
        coalesce(sum(n) FILTER (WHERE side = 'test'), 0) AS test_n,
        coalesce(sum(duration_ns) FILTER (WHERE side = 'control'), 0) AS control_ns,
        coalesce(sum(duration_ns) FILTER (WHERE side = 'test'), 0) AS test_ns
    FROM measured
    GROUP BY part, by_what, cat, name, input_dims, input_types
)
SELECT
    part,  -- The compared windows, as in compared.
    by_what,  -- The kind of comparison, as in compared.
    -- cpu by `host`; NULL by `cause` or `owner`, because some causes are on the host; else gpu.
    CASE WHEN by_what = 'host' THEN 'cpu' WHEN by_what NOT IN ('cause', 'owner') THEN 'gpu' END AS device,
    -- Category of the events by `kernel` or `host`; category of the work by `work`; the cause by `owner`; else NULL.
    cat,
    name,  -- Name of the operator, category, module, event or cause, depending on by_what.
    input_dims,  -- Sizes of the inputs, as JSON; NULL unless by `shape`, or if not recorded.
    input_types,  -- Types of the inputs, as JSON; NULL unless by `shape`, or if not recorded.
    CAST(control_n AS BIGINT) AS control_n,  -- Count in control.
    CAST(test_n AS BIGINT) AS test_n,  -- Count in test.
    CAST(test_n - control_n AS BIGINT) AS diff_n,  -- test_n minus control_n.
    TRY_CAST(control_ns AS BIGINT) AS control_ns,  -- Time in control, ns.
    TRY_CAST(test_ns AS BIGINT) AS test_ns,  -- Time in test, ns.
    TRY_CAST(test_ns - control_ns AS BIGINT) AS diff_ns,  -- test_ns minus control_ns, ns.
    -- added or deleted if one side has no events; else the change of time: increased, decreased, or unchanged if the
    -- difference is within threshold('compare_unchanged_percent') % of the longer side.
    CASE
        WHEN control_n = 0 THEN 'added'
        WHEN test_n = 0 THEN 'deleted'
        WHEN
            100 * abs(test_ns - control_ns)
            <= threshold('compare_unchanged_percent') * greatest(control_ns, test_ns)
            THEN 'unchanged'
        WHEN test_ns > control_ns THEN 'increased'
        ELSE 'decreased'
    END AS change
FROM sides;

-- model: _compared_parts
-- One row: a summary of a comparison in _comparison, with its total times and the names that changed and grew most.
-- check: unique(part, by_what)
WITH ranked AS (
    SELECT
        part, by_what, name, diff_ns, control_ns, test_ns,
        row_number() OVER (PARTITION BY part, by_what ORDER BY abs(diff_ns) DESC, name, cat, input_dims) AS by_change,
        row_number() OVER (PARTITION BY part, by_what ORDER BY diff_ns DESC, name, cat, input_dims) AS by_growth
    FROM _comparison
)
SELECT
    part,  -- The compared windows, as in compared.
    by_what,  -- The kind of comparison, as in compared.
    TRY_CAST(sum(control_ns) AS BIGINT) AS control_ns,  -- Time of all rows in control, ns.
    TRY_CAST(sum(test_ns) AS BIGINT) AS test_ns,  -- Time of all rows in test, ns.
    max(CASE WHEN by_change = 1 THEN name END) AS changed_name,  -- Name with the largest change of time.
    max(CASE WHEN by_change = 1 THEN diff_ns END) AS changed_ns,  -- Change of changed_name, test minus control, ns.
    max(CASE WHEN by_growth = 1 THEN name END) AS grown_name,  -- Name with the largest increase of time.
    -- Increase of grown_name, ns; at most 0 where nothing grew.
    max(CASE WHEN by_growth = 1 THEN diff_ns END) AS grown_ns
FROM ranked
GROUP BY part, by_what;
