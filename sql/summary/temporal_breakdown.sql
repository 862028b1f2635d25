-- One row: a device of a trace, with its time divided into computing, other work and idle time. A trace without GPU
-- work has one row, whose device and times are NULL.
-- How: the span runs from the first start to the last end of the merged intervals. Idle is the span outside these
-- intervals, and compute is the merged COMPUTATION.
-- check: unique(trace_id, device)
WITH per_device AS (
    SELECT
        trace_id, device,
        max(end_ns) FILTER (WHERE scope = 'all') - min(start_ns) FILTER (WHERE scope = 'all') AS span_ns,
        coalesce(sum(end_ns - start_ns) FILTER (WHERE scope = 'all'), 0) AS busy_ns,
        coalesce(sum(end_ns - start_ns) FILTER (WHERE scope = 'COMPUTATION'), 0) AS compute_ns,
        coalesce(sum(end_ns - start_ns) FILTER (WHERE scope = 'COMMUNICATION'), 0) AS communication_ns,
        coalesce(sum(end_ns - start_ns) FILTER (WHERE scope = 'MEMORY'), 0) AS memory_ns,
        sum(n_kernels) FILTER (WHERE scope = 'all') AS n_kernels
    FROM merged_intervals
    GROUP BY trace_id, device
),
-- reached_ns is the end of earlier activities, so that overlapping time counts once.
reached AS (
    SELECT
        trace_id, device, start_ns, end_ns,
        max(end_ns) OVER (
            PARTITION BY trace_id, device ORDER BY start_ns, event_id
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS reached_ns
    FROM _earlier_work
),
earlier AS (
    SELECT
        trace_id, device, count(*) AS n,
        sum(greatest(end_ns - greatest(start_ns, coalesce(reached_ns, start_ns)), 0)) AS ns
    FROM reached
    GROUP BY trace_id, device
),
exposed AS (
    SELECT
        trace_id, device,
        coalesce(
            sum(end_ns - start_ns) FILTER (WHERE n_communication > 0 AND n_compute = 0), 0
        ) AS exposed_communication_ns,
        coalesce(
            sum(end_ns - start_ns) FILTER (WHERE n_memory > 0 AND n_compute = 0 AND n_communication = 0), 0
        ) AS exposed_memory_ns
    FROM _class_overlap
    GROUP BY trace_id, device
),
parts AS (
    SELECT
        t.trace_id, d.device,
        d.span_ns, d.busy_ns, d.compute_ns, d.communication_ns, d.memory_ns,
        CASE WHEN d.trace_id IS NOT NULL THEN greatest(d.span_ns - d.busy_ns, 0) END AS idle_ns,
        CASE
            WHEN d.trace_id IS NOT NULL
                THEN greatest(d.span_ns - d.compute_ns - greatest(d.span_ns - d.busy_ns, 0), 0)
        END AS non_compute_ns,
        CASE WHEN d.trace_id IS NOT NULL THEN coalesce(x.exposed_communication_ns, 0) END AS exposed_communication_ns,
        CASE WHEN d.trace_id IS NOT NULL THEN coalesce(x.exposed_memory_ns, 0) END AS exposed_memory_ns,
        coalesce(d.n_kernels, 0) AS n_kernels,
        coalesce(e.n, 0) AS n_earlier,
        CASE WHEN d.trace_id IS NOT NULL THEN coalesce(e.ns, 0) END AS earlier_ns
    FROM traces AS t
    LEFT JOIN per_device AS d ON d.trace_id = t.trace_id
    LEFT JOIN exposed AS x ON x.trace_id = d.trace_id AND x.device = d.device
    LEFT JOIN earlier AS e ON e.trace_id = d.trace_id AND e.device = d.device
)
SELECT
    trace_id,  -- The trace.
    device,  -- Device; NULL if the trace has no GPU work.
    -- First start to last end of GPU work, ns; NULL, like all times, if the trace has no GPU work.
    TRY_CAST(span_ns AS BIGINT) AS span_ns,
    TRY_CAST(busy_ns AS BIGINT) AS busy_ns,  -- Time with any GPU work, ns.
    TRY_CAST(idle_ns AS BIGINT) AS idle_ns,  -- Time without GPU work, ns.
    TRY_CAST(compute_ns AS BIGINT) AS compute_ns,  -- Time with a COMPUTATION kernel, ns.
    TRY_CAST(non_compute_ns AS BIGINT) AS non_compute_ns,  -- Busy time without a COMPUTATION kernel, ns.
    -- compute_ns in percent of the span.
    CASE WHEN span_ns > 0 THEN 100e0 * compute_ns / span_ns WHEN span_ns = 0 THEN 0e0 END AS compute_percent,
    -- non_compute_ns in percent of the span.
    CASE WHEN span_ns > 0 THEN 100e0 * non_compute_ns / span_ns WHEN span_ns = 0 THEN 0e0 END AS non_compute_percent,
    -- idle_ns in percent of the span.
    CASE WHEN span_ns > 0 THEN 100e0 * idle_ns / span_ns WHEN span_ns = 0 THEN 0e0 END AS idle_percent,
    TRY_CAST(communication_ns AS BIGINT) AS communication_ns,  -- Time with a COMMUNICATION kernel, ns.
    TRY_CAST(memory_ns AS BIGINT) AS memory_ns,  -- Time with a copy or memset, ns.
    -- Communication time without computation, ns.
    TRY_CAST(exposed_communication_ns AS BIGINT) AS exposed_communication_ns,
    TRY_CAST(exposed_memory_ns AS BIGINT) AS exposed_memory_ns,  -- Copy time without computation or communication, ns.
    CAST(n_kernels AS BIGINT) AS n_kernels,  -- Number of GPU activities.
    CAST(n_earlier AS BIGINT) AS n_earlier,  -- Number of GPU activities that were launched before the trace began.
    -- Time with GPU activities that were launched before the trace began, ns; included in the times above.
    TRY_CAST(earlier_ns AS BIGINT) AS earlier_ns
FROM parts
