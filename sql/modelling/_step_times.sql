-- One row: a profiler step with its measured times and the ideal times of its operators and collectives.
-- How: measured times from _step_parts; an operator counts in the step in which its first work was launched.
WITH ops AS (
    SELECT
        o.trace_id, o.op_event_id, min(s.step) AS step
    FROM op_kernels AS o
    JOIN kernels AS k ON k.trace_id = o.trace_id AND k.event_id = o.event_id
    JOIN _event_steps AS s ON s.trace_id = k.trace_id AND s.event_id = k.launch_event_id
    WHERE o.op_event_id IS NOT NULL
    GROUP BY o.trace_id, o.op_event_id
),
ideal AS (
    SELECT o.trace_id, o.step, sum(u.ideal_ns) AS comp_ideal_ns
    FROM ops AS o
    JOIN op_utilization AS u ON u.trace_id = o.trace_id AND u.event_id = o.op_event_id AND u.peak_kind = 'datasheet'
    GROUP BY o.trace_id, o.step
),
comm AS (
    SELECT
        trace_id, step, count(*) AS n_communication, count(ideal_ns) AS n_communication_known, sum(ideal_ns) AS ideal_ns
    FROM collective_bandwidth
    WHERE step IS NOT NULL
    GROUP BY trace_id, step
),
seen AS (
    SELECT k.trace_id, count(*) AS n_kernels FROM kernels AS k GROUP BY k.trace_id
),
loaders AS (
    SELECT DISTINCT trace_id FROM _step_intervals WHERE part = 'load'
)
SELECT
    s.trace_id,  -- The trace.
    s.step,  -- The profiler step.
    s.start_ns,  -- Start on the CPU, ns.
    s.end_ns,  -- End on the CPU, ns.
    s.duration_ns,  -- Duration on the CPU, ns.
    -- In the data loader, ns; NULL where the trace's steps have none.
    CASE WHEN l.trace_id IS NOT NULL THEN coalesce(p.loader_ns, 0) END AS loader_ns,
    -- In it while no GPU work ran, ns; NULL where the trace's steps have none.
    CASE WHEN l.trace_id IS NOT NULL THEN coalesce(p.stall_ns, 0) END AS stall_ns,
    -- Copies to the device, ns; NULL without GPU work.
    CASE WHEN g.trace_id IS NOT NULL THEN coalesce(p.htod_ns, 0) END AS htod_ns,
    -- Computing kernels, ns; NULL without GPU work.
    CASE WHEN g.trace_id IS NOT NULL THEN coalesce(p.compute_ns, 0) END AS comp_ns,
    -- Copies to the host and annotations that save, ns; NULL without GPU work.
    CASE WHEN g.trace_id IS NOT NULL THEN coalesce(p.save_ns, 0) END AS save_ns,
    i.comp_ideal_ns,  -- Matrix operations at peak, ns; NULL for an unknown device or without modeled operators.
    coalesce(c.n_communication, 0) AS n_communication,  -- Communication kernels.
    coalesce(c.n_communication_known, 0) AS n_communication_known,  -- Those with an ideal time.
    -- Collectives at full link bandwidth, ns; NULL where that of any is not known.
    CASE
        WHEN g.trace_id IS NULL OR c.n_communication > c.n_communication_known THEN NULL
        ELSE coalesce(c.ideal_ns, 0)
    END AS communication_ideal_ns,
    p.communication_ns,  -- Communication kernels, ns; NULL without GPU work in the step.
    p.overlapped_ns,  -- With computation at the same time, ns; NULL without GPU work in the step.
    p.first_ns,  -- Start of the first computation, ns.
    p.last_ns,  -- End of the last, ns.
    p.stage_busy_ns,  -- Between these with kernels that are not transfers, ns.
    coalesce(p.n_transfers, 0) AS n_transfers  -- Kernels that send to or receive from another rank.
FROM profiler_steps AS s
LEFT JOIN _step_parts AS p ON p.trace_id = s.trace_id AND p.step = s.step
LEFT JOIN ideal AS i ON i.trace_id = s.trace_id AND i.step = s.step
LEFT JOIN comm AS c ON c.trace_id = s.trace_id AND c.step = s.step
LEFT JOIN seen AS g ON g.trace_id = s.trace_id
LEFT JOIN loaders AS l ON l.trace_id = s.trace_id
