-- One row: an interval that counts for a profiler step: GPU work launched in it, GPU work that runs during it, and CPU
-- events of its stages.
-- How: by the launch's start; GPU work that runs during the step counts as running only; CPU events are clipped to the
-- step. Those that begin before it are found by parts of time longer than the event, as in _kernel_steps.
-- A SendRecv kernel that the trace says nothing about may be an all-to-all, so it counts as a collective, not as a
-- transfer.
WITH launched AS (
    SELECT
        k.trace_id, s.step, k.event_id, k.start_ns, k.end_ns, k.cat, k.class, k.name,
        c.kind = 'sendrecv' AND NOT c.waits_for_all AS is_transfer, e.start_ns AS launch_ns
    FROM kernels AS k
    JOIN events AS e ON e.trace_id = k.trace_id AND e.event_id = k.launch_event_id
    JOIN _event_steps AS s ON s.trace_id = e.trace_id AND s.event_id = e.event_id
    LEFT JOIN collective_kernels AS c ON c.trace_id = k.trace_id AND c.event_id = k.event_id
),
named AS (
    SELECT DISTINCT name FROM events WHERE cat IN ('cpu_op', 'user_annotation') AND duration_ns > 0
),
stage_kinds AS (
    SELECT DISTINCT stage FROM step_stages
),
stages AS (
    SELECT n.name, k.stage
    FROM named AS n
    CROSS JOIN stage_kinds AS k
    WHERE first_step_stages(k.stage, n.name) IS NOT NULL
),
stage_events AS (
    SELECT
        e.trace_id, e.event_id, r.stage, e.start_ns, e.end_ns,
        CAST(pow(2, ceil(ln(greatest(e.duration_ns, 1)) / ln(2)) + 1) AS BIGINT) AS part_ns
    FROM events AS e
    JOIN stages AS r ON r.name = e.name
    WHERE e.cat IN ('cpu_op', 'user_annotation') AND e.duration_ns > 0
),
stage_parts AS (
    SELECT *, start_ns // part_ns AS part FROM stage_events
    UNION ALL
    SELECT *, end_ns // part_ns AS part FROM stage_events WHERE end_ns // part_ns > start_ns // part_ns
),
stage_lengths AS (
    SELECT DISTINCT trace_id, part_ns FROM stage_events
),
step_starts AS (
    SELECT s.trace_id, s.step, s.start_ns, s.end_ns, l.part_ns, s.start_ns // l.part_ns AS part
    FROM profiler_steps AS s
    JOIN stage_lengths AS l ON l.trace_id = s.trace_id
),
staged AS (
    SELECT e.trace_id, s.step, e.stage, e.start_ns, least(e.end_ns, s.end_ns) AS end_ns
    FROM stage_events AS e
    JOIN _event_steps AS i ON i.trace_id = e.trace_id AND i.event_id = e.event_id
    JOIN profiler_steps AS s ON s.trace_id = i.trace_id AND s.step = i.step
    UNION ALL
    SELECT e.trace_id, s.step, e.stage, s.start_ns, least(e.end_ns, s.end_ns)
    FROM step_starts AS s
    JOIN stage_parts AS e ON e.trace_id = s.trace_id AND e.part_ns = s.part_ns AND e.part = s.part
    WHERE e.start_ns < s.start_ns AND e.end_ns > s.start_ns
),
-- A launch is in an optimizer's call where more of these have begun than ended.
marks AS (
    SELECT trace_id, step, CAST(NULL AS BIGINT) AS event_id, start_ns AS at_ns, 1 AS turn, 1 AS change
    FROM staged
    WHERE stage = 'optimizer'
    UNION ALL
    SELECT trace_id, step, NULL, end_ns, 0, -1 FROM staged WHERE stage = 'optimizer'
    UNION ALL
    SELECT trace_id, step, event_id, launch_ns, 2, 0 FROM launched
),
counted AS (
    SELECT
        trace_id, event_id,
        sum(change) OVER (
            PARTITION BY trace_id, step ORDER BY at_ns, turn ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        ) AS n_open
    FROM marks
),
optimizers AS (
    SELECT DISTINCT trace_id, event_id FROM counted WHERE event_id IS NOT NULL AND n_open > 0
),
parts AS (
    SELECT
        l.trace_id, l.step, l.start_ns, greatest(l.end_ns, l.start_ns) AS end_ns,
        CASE
            WHEN l.is_transfer THEN 'transfer'
            WHEN l.class = 'COMMUNICATION' THEN 'collective'
            WHEN l.cat = 'kernel' AND o.event_id IS NOT NULL THEN 'optimizer'
            WHEN l.cat = 'kernel' THEN 'compute'
            WHEN l.name LIKE '%HtoD%' OR l.name LIKE '%HostToDevice%' THEN 'htod'
            WHEN l.name LIKE '%DtoH%' OR l.name LIKE '%DeviceToHost%' THEN 'dtoh'
        END AS part
    FROM launched AS l
    LEFT JOIN optimizers AS o ON o.trace_id = l.trace_id AND o.event_id = l.event_id
    UNION ALL
    SELECT k.trace_id, s.step, greatest(k.start_ns, s.start_ns), least(k.end_ns, s.end_ns), 'running'
    FROM _kernel_steps AS r
    JOIN profiler_steps AS s ON s.trace_id = r.trace_id AND s.step = r.step
    JOIN kernels AS k ON k.trace_id = r.trace_id AND k.event_id = r.event_id
    UNION ALL
    SELECT trace_id, step, start_ns, end_ns, stage FROM staged WHERE stage IN ('load', 'save')
)
SELECT
    trace_id,  -- The trace.
    step,  -- The profiler step.
    -- compute, optimizer, collective, transfer (between two ranks), htod, dtoh (copies), running (any GPU work during
    -- the step), load, save.
    part,
    start_ns,  -- Start, ns.
    end_ns  -- End, ns.
FROM parts
WHERE part IS NOT NULL
