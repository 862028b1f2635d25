-- model: _kernel_steps
-- One row: a GPU activity that runs during a profiler step.
-- How: the activity starts within the step's annotation, or the annotation starts while the activity runs. Time is
-- divided into parts longer than the step, or longer than the activity, as in _steps_in_parts.
-- check: unique(trace_id, event_id, step)
WITH lengths AS (
    SELECT DISTINCT trace_id, part_ns FROM _steps_in_parts
),
stepped AS (
    SELECT DISTINCT trace_id FROM lengths
),
starts AS (
    SELECT k.trace_id, k.event_id, k.start_ns, k.end_ns, l.part_ns, k.start_ns // l.part_ns AS part
    FROM kernels AS k
    JOIN lengths AS l ON l.trace_id = k.trace_id
),
work AS (
    SELECT
        k.trace_id, k.event_id, k.start_ns, k.end_ns,
        CAST(pow(2, ceil(ln(greatest(k.end_ns - k.start_ns, 1)) / ln(2)) + 1) AS BIGINT) AS part_ns
    FROM kernels AS k
    JOIN stepped AS s ON s.trace_id = k.trace_id
),
work_lengths AS (
    SELECT DISTINCT trace_id, part_ns FROM work
),
work_parts AS (
    SELECT *, start_ns // part_ns AS part FROM work
    UNION ALL
    SELECT *, end_ns // part_ns AS part FROM work WHERE end_ns // part_ns > start_ns // part_ns
),
step_starts AS (
    SELECT s.trace_id, s.step, s.start_ns, l.part_ns, s.start_ns // l.part_ns AS part
    FROM profiler_steps AS s
    JOIN work_lengths AS l ON l.trace_id = s.trace_id
)
SELECT
    k.trace_id,  -- The trace.
    k.event_id,  -- The GPU activity.
    s.step  -- Number of the step.
FROM starts AS k
JOIN _steps_in_parts AS s ON s.trace_id = k.trace_id AND s.part_ns = k.part_ns AND s.part = k.part
WHERE k.start_ns >= s.start_ns AND k.start_ns < s.end_ns AND k.end_ns > s.start_ns
UNION ALL
SELECT k.trace_id, k.event_id, s.step
FROM step_starts AS s
JOIN work_parts AS k ON k.trace_id = s.trace_id AND k.part_ns = s.part_ns AND k.part = s.part
WHERE k.start_ns < s.start_ns AND k.end_ns > s.start_ns;

-- model: _step_intervals
-- One row: an interval that counts for a profiler step: GPU work launched in the step, GPU work that runs during the
-- step, or a CPU event of one of its stages.
-- How: launched work belongs to the step in which its launch call starts. Work that runs during the step counts as
-- running only. CPU events are clipped to the step. For events that begin before the step, time is divided into parts
-- longer than the event, as in _kernel_steps. A SendRecv kernel without details in the trace may be an all-to-all, so
-- it counts as a collective, not as a transfer.
WITH launched AS (
    SELECT
        k.trace_id, s.step, k.event_id, k.start_ns, k.end_ns, n.counts_as, k.name,
        c.kind = 'sendrecv' AND NOT c.waits_for_all AS is_transfer, e.start_ns AS launch_ns
    FROM kernels AS k
    JOIN events AS e ON e.trace_id = k.trace_id AND e.event_id = k.launch_event_id
    JOIN _event_steps AS s ON s.trace_id = e.trace_id AND s.event_id = e.event_id
    LEFT JOIN class_kinds AS n ON n.class = k.class
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
-- A launch is in an optimizer's call if more such calls have begun than ended.
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
            WHEN l.counts_as = 'COMMUNICATION' THEN 'collective'
            WHEN l.counts_as = 'COMPUTATION' AND o.event_id IS NOT NULL THEN 'optimizer'
            WHEN l.counts_as = 'COMPUTATION' THEN 'compute'
            -- On XPU, M stands for the host's memory.
            WHEN regexp_matches(l.name, 'HtoD|HostToDevice|[HM]2D') THEN 'htod'
            WHEN regexp_matches(l.name, 'DtoH|DeviceToHost|D2[HM]') THEN 'dtoh'
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
WHERE part IS NOT NULL;

-- model: _step_parts
-- One row: a profiler step with the duration of its parts; overlaps within a part count once.
-- How: a sweep over the starts and ends of _step_intervals. Between two consecutive starts or ends, the set of open
-- intervals does not change.
WITH bounds AS (
    SELECT
        trace_id, step,
        min(start_ns) FILTER (WHERE part = 'compute') AS first_ns,
        max(end_ns) FILTER (WHERE part = 'compute') AS last_ns,
        count(*) FILTER (WHERE part = 'transfer') AS n_transfers
    FROM _step_intervals
    GROUP BY trace_id, step
),
changes AS (
    SELECT trace_id, step, part, start_ns AS at_ns, 1 AS change FROM _step_intervals
    UNION ALL
    SELECT trace_id, step, part, end_ns, -1 FROM _step_intervals
),
summed AS (
    SELECT
        trace_id, step, at_ns,
        sum(CASE WHEN part IN ('compute', 'optimizer') THEN change ELSE 0 END) AS compute,
        sum(CASE WHEN part IN ('collective', 'transfer') THEN change ELSE 0 END) AS comm,
        sum(CASE WHEN part IN ('compute', 'optimizer', 'collective') THEN change ELSE 0 END) AS stage,
        sum(CASE WHEN part = 'htod' THEN change ELSE 0 END) AS htod,
        sum(CASE WHEN part IN ('dtoh', 'save') THEN change ELSE 0 END) AS saving,
        sum(CASE WHEN part = 'load' THEN change ELSE 0 END) AS loading,
        sum(CASE WHEN part = 'running' THEN change ELSE 0 END) AS running
    FROM changes
    GROUP BY trace_id, step, at_ns
),
open_parts AS (
    SELECT
        trace_id, step, at_ns,
        lead(at_ns) OVER (PARTITION BY trace_id, step ORDER BY at_ns) AS until_ns,
        sum(compute) OVER (
            PARTITION BY trace_id, step ORDER BY at_ns ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        ) AS compute,
        sum(comm) OVER (
            PARTITION BY trace_id, step ORDER BY at_ns ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        ) AS comm,
        sum(stage) OVER (
            PARTITION BY trace_id, step ORDER BY at_ns ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        ) AS stage,
        sum(htod) OVER (
            PARTITION BY trace_id, step ORDER BY at_ns ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        ) AS htod,
        sum(saving) OVER (
            PARTITION BY trace_id, step ORDER BY at_ns ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        ) AS saving,
        sum(loading) OVER (
            PARTITION BY trace_id, step ORDER BY at_ns ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        ) AS loading,
        sum(running) OVER (
            PARTITION BY trace_id, step ORDER BY at_ns ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        ) AS running
    FROM summed
),
stretches AS (
    SELECT *, coalesce(until_ns - at_ns, 0) AS duration_ns FROM open_parts
)
SELECT
    s.trace_id,  -- The trace.
    s.step,  -- The profiler step.
    -- Time with compute kernels launched in the step, ns.
    sum(CASE WHEN s.compute > 0 THEN s.duration_ns ELSE 0 END) AS compute_ns,
    -- Time with communication launched in the step, ns.
    sum(CASE WHEN s.comm > 0 THEN s.duration_ns ELSE 0 END) AS communication_ns,
    sum(CASE WHEN s.comm > 0 AND s.compute > 0 THEN s.duration_ns ELSE 0 END) AS overlapped_ns,  -- Time with both, ns.
    -- Time with copies to the device launched in the step, ns.
    sum(CASE WHEN s.htod > 0 THEN s.duration_ns ELSE 0 END) AS htod_ns,
    -- Time with copies to the host launched in the step, or in annotations that save, ns.
    sum(CASE WHEN s.saving > 0 THEN s.duration_ns ELSE 0 END) AS save_ns,
    sum(CASE WHEN s.loading > 0 THEN s.duration_ns ELSE 0 END) AS loader_ns,  -- Time in the data loader, ns.
    -- Time in the data loader while no GPU work runs, ns.
    sum(CASE WHEN s.loading > 0 AND s.running = 0 THEN s.duration_ns ELSE 0 END) AS stall_ns,
    -- Time between first_ns and last_ns with kernels that are not transfers, ns.
    sum(
        CASE WHEN s.stage > 0 AND s.at_ns >= b.first_ns AND s.at_ns < b.last_ns THEN s.duration_ns ELSE 0 END
    ) AS stage_busy_ns,
    b.first_ns,  -- Start of the first computation, except the optimizer's, ns; NULL without any.
    b.last_ns,  -- End of the last such computation, ns; NULL without any.
    b.n_transfers  -- Kernels that send to or receive from another rank.
FROM stretches AS s
JOIN bounds AS b ON b.trace_id = s.trace_id AND b.step = s.step
GROUP BY s.trace_id, s.step, b.first_ns, b.last_ns, b.n_transfers;

-- model: _step_times
-- One row: a profiler step with its measured times and the ideal times of its operators and collectives.
-- How: _step_parts supplies the measured times. An operator counts in the first step that launched its work. If the
-- trace has no launches of GPU work, the work of a step is unknown.
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
    SELECT k.trace_id, count(k.launch_event_id) AS n_launched FROM kernels AS k GROUP BY k.trace_id
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
    -- Time in the data loader, ns; NULL where the trace's steps have none.
    CASE WHEN l.trace_id IS NOT NULL THEN coalesce(p.loader_ns, 0) END AS loader_ns,
    -- Time in the data loader while no GPU work ran, ns; NULL where the trace's steps have none.
    CASE WHEN l.trace_id IS NOT NULL THEN coalesce(p.stall_ns, 0) END AS stall_ns,
    -- False if the trace has GPU work but no launches; NULL without GPU work.
    g.n_launched > 0 AS has_launches,
    -- Time with copies to the device, ns; NULL without GPU work whose launch is in the trace.
    CASE WHEN g.n_launched > 0 THEN coalesce(p.htod_ns, 0) END AS htod_ns,
    -- Time with compute kernels, ns; NULL like htod_ns.
    CASE WHEN g.n_launched > 0 THEN coalesce(p.compute_ns, 0) END AS comp_ns,
    -- Time with copies to the host and in annotations that save, ns; NULL like htod_ns.
    CASE WHEN g.n_launched > 0 THEN coalesce(p.save_ns, 0) END AS save_ns,
    i.comp_ideal_ns,  -- Matrix operations at peak, ns; NULL for an unknown device or without modeled operators.
    -- Communication kernels; NULL like htod_ns.
    CASE WHEN g.n_launched > 0 THEN coalesce(c.n_communication, 0) END AS n_communication,
    -- Communication kernels with an ideal time; NULL like htod_ns.
    CASE WHEN g.n_launched > 0 THEN coalesce(c.n_communication_known, 0) END AS n_communication_known,
    -- Time of collectives at full link bandwidth, ns; NULL like htod_ns, or if the ideal of any collective is unknown.
    CASE
        WHEN g.n_launched > 0 AND coalesce(c.n_communication = c.n_communication_known, TRUE)
            THEN coalesce(c.ideal_ns, 0)
    END AS communication_ideal_ns,
    -- Time with communication kernels, ns; NULL like htod_ns, or without GPU work in the step.
    CASE WHEN g.n_launched > 0 THEN p.communication_ns END AS communication_ns,
    -- Part of communication_ns with concurrent computation, ns; NULL like communication_ns.
    CASE WHEN g.n_launched > 0 THEN p.overlapped_ns END AS overlapped_ns,
    p.first_ns,  -- Start of the first computation, ns.
    p.last_ns,  -- End of the last computation, ns.
    p.stage_busy_ns,  -- Time between first_ns and last_ns with kernels that are not transfers, ns.
    coalesce(p.n_transfers, 0) AS n_transfers  -- Kernels that send to or receive from another rank.
FROM profiler_steps AS s
LEFT JOIN _step_parts AS p ON p.trace_id = s.trace_id AND p.step = s.step
LEFT JOIN ideal AS i ON i.trace_id = s.trace_id AND i.step = s.step
LEFT JOIN comm AS c ON c.trace_id = s.trace_id AND c.step = s.step
LEFT JOIN seen AS g ON g.trace_id = s.trace_id
LEFT JOIN loaders AS l ON l.trace_id = s.trace_id;

-- model: step_pipeline
-- One row: a profiler step as a pipeline of loading, computing and saving, with its limiting stage and its exposed
-- communication.
-- How: efficiency is the longest stage divided by the step. Exposure is the time beyond the ideal, in units of ideal
-- communication. Values are kept even if models or peaks must be wrong. Communication is not a stage, because its
-- kernels also run while they wait for other ranks. One rank alone cannot distinguish this wait from work
-- (step_exposure can).
-- check: unique(trace_id, step)
WITH staged AS (
    SELECT *, greatest(loader_ns, htod_ns) AS load_ns
    FROM _step_times
),
longest AS (
    -- The data loader is the longest stage only if the others are known, or if there is no GPU work at all.
    SELECT
        *,
        CASE
            WHEN duration_ns > 0 AND (has_launches IS NULL OR has_launches) THEN greatest(load_ns, comp_ns, save_ns)
        END AS longest_ns
    FROM staged
)
SELECT
    trace_id,  -- The trace.
    step,  -- The profiler step.
    start_ns,  -- Start on the CPU, ns.
    -- T_actual: duration of the step's annotation on the CPU, ns, as these formulas require; step_lengths has the
    -- length of the step.
    duration_ns,
    -- Time in the data loader, clipped to the step's annotation, ns; NULL where the trace's steps have none.
    TRY_CAST(loader_ns AS BIGINT) AS loader_ns,
    -- Time with copies to the device launched in the step, ns; NULL without GPU work whose launch is in the trace.
    TRY_CAST(htod_ns AS BIGINT) AS htod_ns,
    -- T_load: the larger of loader_ns and htod_ns, ns; NULL where both are NULL.
    TRY_CAST(load_ns AS BIGINT) AS load_ns,
    -- T_comp: time with compute kernels launched in the step, ns, excluding communication; NULL like htod_ns.
    TRY_CAST(comp_ns AS BIGINT) AS comp_ns,
    -- T_save: time with copies to the host launched in the step or in annotations that save, ns; NULL like htod_ns.
    TRY_CAST(save_ns AS BIGINT) AS save_ns,
    -- The longest stage divided by T_actual; may exceed 1; NULL where all stages are NULL, where T_actual is 0, or if
    -- the trace has GPU work but no launches.
    CAST(longest_ns AS DOUBLE) / duration_ns AS efficiency,
    -- The longest stage: load, comp or save, the first if several are equal; NULL where efficiency is NULL.
    CASE
        WHEN longest_ns = load_ns THEN 'load'
        WHEN longest_ns = comp_ns THEN 'comp'
        WHEN longest_ns = save_ns THEN 'save'
    END AS dragging_stage,
    -- Time in the data loader divided by T_actual, percent.
    100 * (CAST(loader_ns AS DOUBLE) / nullif(duration_ns, 0)) AS loader_percent,
    -- Time in the data loader while no GPU work ran, ns; NULL where the trace's steps have no loader.
    TRY_CAST(stall_ns AS BIGINT) AS loader_stall_ns,
    -- Ideal T_comp: matrix operations at the device's datasheet peak, ns; NULL for an unknown device or without
    -- modeled operators.
    comp_ideal_ns,
    -- Ideal T_c2c: collectives at full link bandwidth, ns; NULL if the ideal of any collective is unknown, and like
    -- htod_ns.
    communication_ideal_ns,
    -- T_ideal: the longer of the two ideal times, assuming that all other work overlaps, ns; NULL where comp_ideal_ns
    -- is NULL.
    CASE WHEN comp_ideal_ns IS NOT NULL THEN greatest(comp_ideal_ns, communication_ideal_ns) END AS ideal_ns,
    n_communication,  -- Communication kernels of the step; NULL like htod_ns.
    n_communication_known,  -- Communication kernels with an ideal time; NULL like htod_ns.
    -- (T_actual - T_ideal) / T_c2c; above 1 where more than communication costs time; negative where a model or peak is
    -- wrong; NULL without ideal times.
    CASE
        WHEN communication_ideal_ns > 0 AND comp_ideal_ns IS NOT NULL
            THEN (duration_ns - greatest(comp_ideal_ns, communication_ideal_ns)) / communication_ideal_ns
    END AS exposure_ratio,
    -- Time with communication kernels launched in the step, including waiting for other ranks, ns; NULL like htod_ns,
    -- and without GPU work in the step.
    TRY_CAST(communication_ns AS BIGINT) AS communication_ns,
    -- Part of communication_ns with concurrent computation, ns; NULL like communication_ns.
    TRY_CAST(overlapped_ns AS BIGINT) AS communication_overlapped_ns,
    -- Measured percentage of communication_ns without concurrent computation, including waiting; NULL without
    -- communication.
    100 * CASE WHEN communication_ns > 0 THEN CAST(communication_ns - overlapped_ns AS DOUBLE) / communication_ns END
        AS exposed_communication_percent,
    -- Share of the time from first to last computation in which no kernels except transfers ran: an upper bound of the
    -- pipeline bubble, because other stalls count too; NULL without transfers between ranks.
    CASE
        WHEN n_transfers > 0 THEN 1 - CAST(stage_busy_ns AS DOUBLE) / nullif(last_ns - first_ns, 0)
    END AS bubble_upper,
    -- From the step's start to the first computation, ns; NULL without transfers between ranks.
    CASE WHEN n_transfers > 0 THEN first_ns - start_ns END AS warm_up_ns,
    -- From the last computation to the step's end on the CPU, ns; negative where the GPU runs beyond that end; NULL
    -- without transfers.
    CASE WHEN n_transfers > 0 THEN end_ns - last_ns END AS cool_down_ns,
    -- True if the efficiency is above 1 or the exposure is negative: GPU work runs into other steps, or a model or peak
    -- is wrong.
    coalesce(longest_ns > duration_ns, FALSE)
    OR coalesce(communication_ideal_ns > 0 AND duration_ns < greatest(comp_ideal_ns, communication_ideal_ns), FALSE)
        AS suspect
FROM longest;
