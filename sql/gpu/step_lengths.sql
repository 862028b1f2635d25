-- model: _step_marks
-- One row: a profiler step of a trace, and from when to when what the host does is the step's.
-- How: steps in the order in which their annotations end. What lies between two annotations belongs to the later step;
-- where the numbers leave steps out, the later one begins with its annotation.
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
    place,  -- Its place among the steps of the trace, from 1.
    coalesce(step = step_before + 1, FALSE) AS goes_on,  -- The step before it is in the trace.
    -- From when what the host does is the step's, ns.
    CASE
        WHEN step_before IS NULL THEN first_ns
        WHEN step = step_before + 1 THEN end_before_ns
        ELSE greatest(start_ns, end_before_ns)
    END AS start_ns,
    end_ns,  -- Until when, ns: its annotation ends.
    duration_ns AS host_ns  -- How long its annotation is, ns.
FROM ordered;

-- model: _step_work
-- One row: a GPU activity, with the profiler step that launched it, or that begins after its launch.
-- How: by the start of the launch, on whatever thread. Where the trace does not have it, the work was launched no
-- earlier than what ran before it on its stream. Where that has no launch, either, the work is from before the trace if
-- the next launch of the stream is in the first step; else its own start has to do.
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
    w.event_id,  -- The work.
    s.step,  -- Number of the step.
    w.at_ns >= s.start_ns AS is_own,  -- The step launched it; else it was launched before the step, and in none.
    w.end_ns  -- End of the work, ns.
FROM placed AS w
ASOF JOIN _step_marks AS s ON s.trace_id = w.trace_id AND s.end_ns > w.at_ns;

-- model: step_lengths
-- One row: a profiler step of a trace, and how long it is: from the end of what bound the step before to the end of
-- what binds it. Every length of a step comes from here.
-- How: a step ends when its annotation has ended and so has the GPU work that it launched, and never before the step
-- before it. So steps follow each other without a gap, and add up to the window of the critical path of all of them,
-- however far the host runs ahead of the GPU. The first step begins with its annotation, or when GPU work that was
-- launched earlier ends; so does a step whose number says that the one before it is missing.
-- check: unique(trace_id, step)
WITH worked AS (
    SELECT
        trace_id, step, max(CASE WHEN is_own THEN end_ns END) AS own_end_ns,
        max(CASE WHEN NOT is_own THEN end_ns END) AS earlier_end_ns
    FROM _step_work
    GROUP BY trace_id, step
),
ends AS (
    SELECT
        m.trace_id, m.step, m.place, m.goes_on, m.start_ns AS host_start_ns, m.end_ns AS host_end_ns, m.host_ns,
        w.earlier_end_ns,
        max(greatest(m.end_ns, coalesce(w.own_end_ns, m.end_ns))) OVER (
            PARTITION BY m.trace_id ORDER BY m.place ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        ) AS end_ns
    FROM _step_marks AS m
    LEFT JOIN worked AS w ON w.trace_id = m.trace_id AND w.step = m.step
),
bounds AS (
    SELECT
        *,
        greatest(
            host_start_ns, coalesce(lag(end_ns) OVER (PARTITION BY trace_id ORDER BY place), host_start_ns),
            -- What ends later than the step did not hold it up.
            CASE WHEN NOT goes_on AND earlier_end_ns < end_ns THEN earlier_end_ns ELSE host_start_ns END
        ) AS start_ns
    FROM ends
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
    start_ns,  -- Its start, ns: the end of what bound the step before.
    end_ns,  -- Its end, ns: the end of what binds it.
    duration_ns,  -- Its length, ns.
    host_start_ns,  -- From when what the host does is the step's, ns: the end of the annotation before it.
    host_end_ns,  -- Until when, ns: the end of its annotation.
    host_ns,  -- How long its annotation is on the host, ns; less than the step where the host runs ahead of the GPU.
    -- Of the first steps, as far as each takes more than threshold('compare_warm_up') times the median of those after
    -- it: how many times. NULL of others, and of the last threshold('compare_warm_up_steps') steps.
    CASE
        WHEN
            bool_and(
                place <= n_steps - threshold('compare_warm_up_steps')
                AND duration_ns > threshold('compare_warm_up') * later_ns
            ) OVER (PARTITION BY trace_id ORDER BY place ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)
            THEN duration_ns / nullif(later_ns, 0)
    END AS warm_up_times
FROM usual;
