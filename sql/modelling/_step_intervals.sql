-- One row: an interval that counts for a profiler step: GPU work launched in it, GPU work that runs during it, and CPU
-- events of its stages.
-- How: by the launch's start; GPU work that runs during the step counts as running only; CPU events are clipped to the
-- step.
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
staged AS (
    SELECT
        e.trace_id, s.step, r.stage, greatest(e.start_ns, s.start_ns) AS start_ns, least(e.end_ns, s.end_ns) AS end_ns
    FROM events AS e
    JOIN stages AS r ON r.name = e.name
    JOIN profiler_steps AS s ON s.trace_id = e.trace_id AND e.start_ns < s.end_ns AND e.end_ns > s.start_ns
    WHERE e.cat IN ('cpu_op', 'user_annotation') AND e.duration_ns > 0
),
optimizers AS (
    SELECT DISTINCT l.trace_id, l.event_id
    FROM launched AS l
    JOIN staged AS o
        ON o.trace_id = l.trace_id AND o.step = l.step AND o.stage = 'optimizer'
            AND l.launch_ns >= o.start_ns AND l.launch_ns < o.end_ns
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
