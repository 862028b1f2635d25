-- model: _step_marks
-- One row: a profiler step of a trace, and the interval in which host activity belongs to it.
-- How: steps are ordered by the ends of their annotations. The time between two annotations belongs to the later step.
-- If step numbers are missing in between, the later step begins with its annotation.
-- check: unique(trace_id, step)
WITH ordered AS (
    SELECT
        trace_id, step, start_ns, end_ns, duration_ns, row_number() OVER in_time AS place,
        min(start_ns) OVER (PARTITION BY trace_id) AS first_ns, lag(step) OVER in_time AS step_before,
        lag(end_ns) OVER in_time AS end_before_ns
    FROM profiler_steps
    WINDOW in_time AS (PARTITION BY trace_id ORDER BY end_ns, start_ns, step)
)
SELECT
    trace_id,  -- The trace.
    step,  -- Number of the step.
    place,  -- Position among the steps of the trace, from 1.
    -- The preceding step number is in the trace, right before this step.
    coalesce(step = step_before + 1, FALSE) AS goes_on,
    -- Start of the interval, ns.
    CASE
        WHEN step_before IS NULL THEN first_ns
        WHEN step = step_before + 1 THEN end_before_ns
        ELSE greatest(start_ns, end_before_ns)
    END AS start_ns,
    end_ns,  -- End of the interval and of the annotation, ns.
    duration_ns AS host_ns  -- Duration of its annotation, ns.
FROM ordered;

-- model: _step_work
-- One row: a GPU activity, with the profiler step that launched it. If no step launched it, the step is the next step
-- after the launch.
-- How: by the start of the launch, on any thread. If the launch is not in the trace, the latest launch of earlier work
-- on the stream counts. If that does not exist either, and the next launch on the stream is before the end of the first
-- step, the work is from before the trace. Otherwise the work's own start counts.
-- check: unique(trace_id, event_id)
WITH first_steps AS (
    SELECT trace_id, start_ns, end_ns FROM _step_marks WHERE place = 1
),
launched AS (
    SELECT
        k.trace_id, k.event_id, k.start_ns, k.end_ns, l.start_ns AS launch_ns, s.start_ns AS first_start_ns,
        s.end_ns AS first_end_ns,
        max(l.start_ns) OVER (on_stream ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS before_ns,
        min(l.start_ns) OVER (PARTITION BY k.trace_id, k.device, k.stream) AS next_ns
    FROM kernels AS k
    JOIN first_steps AS s ON s.trace_id = k.trace_id
    LEFT JOIN events AS l ON l.trace_id = k.trace_id AND l.event_id = k.launch_event_id
    WINDOW on_stream AS (PARTITION BY k.trace_id, k.device, k.stream ORDER BY k.start_ns, k.event_id)
),
placed AS (
    SELECT
        trace_id, event_id, end_ns,
        coalesce(launch_ns, before_ns, CASE WHEN next_ns < first_end_ns THEN first_start_ns - 1 ELSE start_ns END)
            AS at_ns
    FROM launched
)
SELECT
    w.trace_id,  -- The trace.
    w.event_id,  -- The GPU activity.
    s.step,  -- Number of the step.
    -- The step launched it; FALSE: it was launched before this step, outside any step.
    w.at_ns >= s.start_ns AS is_own,
    w.end_ns  -- End of the work, ns.
FROM placed AS w
ASOF JOIN _step_marks AS s ON s.trace_id = w.trace_id AND s.end_ns > w.at_ns;

-- model: step_lengths
-- One row: a profiler step of a trace and its length, from the end of the activity that bound the step before to the
-- end of the activity that bounds this step. All other tables take the lengths of steps from this table.
-- How: a step ends when its annotation and the GPU work that it launched have ended, and never before the preceding
-- step ends. So steps follow each other without gaps, and their lengths add up to the window of the critical path of
-- all steps, however far the host runs ahead of the GPU. The first step begins with its annotation, or when GPU work
-- that was launched earlier ends. So does a step whose number shows that the preceding step is missing.
-- check: unique(trace_id, step)
WITH worked AS (
    SELECT trace_id, step, max(end_ns) AS own_end_ns
    FROM _step_work
    WHERE is_own
    GROUP BY trace_id, step
),
ends AS (
    SELECT
        m.trace_id, m.step, m.place, m.goes_on, m.start_ns AS host_start_ns, m.end_ns AS host_end_ns, m.host_ns,
        max(greatest(m.end_ns, coalesce(w.own_end_ns, m.end_ns))) OVER (
            PARTITION BY m.trace_id ORDER BY m.place ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        ) AS end_ns
    FROM _step_marks AS m
    LEFT JOIN worked AS w ON w.trace_id = m.trace_id AND w.step = m.step
),
-- Work that ends after the step did not delay the step.
earlier AS (
    SELECT e.trace_id, e.step, max(w.end_ns) AS earlier_end_ns
    FROM ends AS e
    JOIN _step_work AS w ON w.trace_id = e.trace_id AND w.step = e.step
    WHERE NOT w.is_own AND NOT e.goes_on AND w.end_ns < e.end_ns
    GROUP BY e.trace_id, e.step
),
bounds AS (
    SELECT
        e.*,
        greatest(
            e.host_start_ns,
            coalesce(lag(e.end_ns) OVER (PARTITION BY e.trace_id ORDER BY e.place), e.host_start_ns),
            coalesce(w.earlier_end_ns, e.host_start_ns)
        ) AS start_ns
    FROM ends AS e
    LEFT JOIN earlier AS w ON w.trace_id = e.trace_id AND w.step = e.step
),
usual AS (
    SELECT
        *, end_ns - start_ns AS duration_ns,
        median(end_ns - start_ns) OVER (
            PARTITION BY trace_id ORDER BY place ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING
        ) AS later_ns,
        count(*) OVER (PARTITION BY trace_id) AS n_steps
    FROM bounds
)
SELECT
    trace_id,  -- The trace.
    step,  -- Number of the step.
    start_ns,  -- Start, ns: the end of the activity that bound the step before.
    end_ns,  -- End, ns: the end of the activity that bounds the step.
    duration_ns,  -- Length, ns.
    host_start_ns,  -- Time from which host activity belongs to the step, ns: the end of the preceding annotation.
    host_end_ns,  -- Time until which host activity belongs to the step, ns: the end of its annotation.
    host_ns,  -- Duration of its annotation on the host, ns; shorter than the step if the host runs ahead of the GPU.
    -- Length divided by the median of later steps, for the leading steps that each exceed threshold('compare_warm_up')
    -- times that median. NULL for other steps, and for the last threshold('compare_warm_up_steps') steps.
    CASE
        WHEN
            bool_and(
                place <= n_steps - threshold('compare_warm_up_steps')
                AND duration_ns > threshold('compare_warm_up') * later_ns
            ) OVER (PARTITION BY trace_id ORDER BY place ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)
            THEN duration_ns / nullif(later_ns, 0)
    END AS warm_up_times
FROM usual;
