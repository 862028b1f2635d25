-- One row: a profiler step of a trace and a device, divided into what the device did and why it did nothing. The parts
-- add up to duration_ns. A trace without GPU work has no rows: nothing says what its devices did.
-- How: the step as the CPU ran it, as in step_times; communication and memory count where nothing before them in this
-- order hides them, as in temporal_breakdown; idle time is divided as in idle_gaps, from the trace's start to its end.
-- check: unique(trace_id, step, device)
WITH busy AS (
    SELECT
        s.trace_id, s.step, o.device,
        sum(
            CASE
                WHEN o.n_communication > 0 AND o.n_compute = 0
                    THEN least(o.end_ns, s.end_ns) - greatest(o.start_ns, s.start_ns)
                ELSE 0
            END
        ) AS communication_ns,
        sum(
            CASE
                WHEN o.n_memory > 0 AND o.n_compute = 0 AND o.n_communication = 0
                    THEN least(o.end_ns, s.end_ns) - greatest(o.start_ns, s.start_ns)
                ELSE 0
            END
        ) AS memory_ns
    FROM profiler_steps AS s
    JOIN _class_overlap AS o ON o.trace_id = s.trace_id AND o.start_ns < s.end_ns AND o.end_ns > s.start_ns
    WHERE o.n_compute = 0
    GROUP BY s.trace_id, s.step, o.device
),
cut AS (
    SELECT
        s.trace_id, s.step, i.device, i.reason,
        least(i.end_ns, s.end_ns) - greatest(i.start_ns, s.start_ns) AS ns
    FROM profiler_steps AS s
    JOIN _idle_stretches AS i ON i.trace_id = s.trace_id AND i.start_ns < s.end_ns AND i.end_ns > s.start_ns
),
idle AS (
    SELECT
        trace_id, step, device,
        sum(CASE WHEN reason = 'blocked' THEN ns ELSE 0 END) AS blocked_ns,
        sum(CASE WHEN reason = 'operator' THEN ns ELSE 0 END) AS operator_ns,
        sum(CASE WHEN reason = 'host' THEN ns ELSE 0 END) AS host_ns,
        sum(CASE WHEN reason = 'launch' THEN ns ELSE 0 END) AS launch_ns
    FROM cut
    GROUP BY trace_id, step, device
),
parts AS (
    SELECT
        t.trace_id, t.step, t.device, t.start_ns, t.duration_ns, t.busy_ns, t.compute_ns,
        coalesce(b.communication_ns, 0) AS communication_ns, coalesce(b.memory_ns, 0) AS memory_ns,
        coalesce(i.blocked_ns, 0) AS blocked_ns, coalesce(i.operator_ns, 0) AS operator_ns,
        coalesce(i.host_ns, 0) AS host_ns, coalesce(i.launch_ns, 0) AS launch_ns
    FROM step_times AS t
    LEFT JOIN busy AS b ON b.trace_id = t.trace_id AND b.step = t.step AND b.device = t.device
    LEFT JOIN idle AS i ON i.trace_id = t.trace_id AND i.step = t.step AND i.device = t.device
    WHERE t.trace_id IN (SELECT m.trace_id FROM merged_intervals AS m)
)
SELECT
    trace_id,  -- The trace.
    step,  -- Number of the step.
    device,  -- Device; NULL where no device did anything in the step.
    start_ns,  -- Start of the step on the CPU, ns.
    duration_ns,  -- Duration of the step on the CPU, ns.
    compute_ns,  -- Time with computing kernels, ns: nothing lost.
    TRY_CAST(communication_ns AS BIGINT) AS exposed_communication_ns,  -- Communication without computation, ns.
    TRY_CAST(memory_ns AS BIGINT) AS exposed_memory_ns,  -- Copies without computation or communication, ns.
    -- Only GPU work of no such class, ns.
    TRY_CAST(busy_ns - compute_ns - communication_ns - memory_ns AS BIGINT) AS other_work_ns,
    -- Idle while the launching thread waited for the GPU in a call, ns.
    TRY_CAST(blocked_ns AS BIGINT) AS idle_blocked_ns,
    TRY_CAST(operator_ns AS BIGINT) AS idle_operator_ns,  -- Idle while it was in another operator or call, ns.
    TRY_CAST(host_ns AS BIGINT) AS idle_host_ns,  -- Idle while it was in neither: Python, loading data, ns.
    -- Idle although the next work was launched, ns: the launch itself, and work that waited for another stream.
    TRY_CAST(launch_ns AS BIGINT) AS idle_launch_ns,
    -- Idle before work whose launch is not in the trace, after the trace's last work, and where no device did anything
    -- in the step, ns.
    TRY_CAST(duration_ns - busy_ns - blocked_ns - operator_ns - host_ns - launch_ns AS BIGINT) AS idle_unknown_ns
FROM parts
