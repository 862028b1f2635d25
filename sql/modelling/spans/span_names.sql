-- One row: a span name and a phase, with the GPU work of all spans of that name.
-- How: like span_kernels, over all spans of the name. Work in several of these spans (a name nested in itself) counts
-- once. Phase replay contains the work that graph replays repeat for the modules and annotations in which the graphs
-- were captured, even if the capture is in another trace.
-- check: unique(trace_id, kind, name, phase)
WITH numbered AS (
    SELECT
        trace_id, event_id, kind, name, family, duration_ns,
        min(event_id) OVER (PARTITION BY trace_id, kind, name) AS name_id
    FROM _span_events
),
own_names AS (
    SELECT DISTINCT trace_id, kind, name, name_id FROM numbered
),
-- Names that occur only in the trace with the capture get negative numbers.
replayed_names AS (
    SELECT
        r.trace_id, r.event_id, r.kind, r.name, r.family, n.name_id AS own_name_id,
        coalesce(n.name_id, -dense_rank() OVER (PARTITION BY r.trace_id ORDER BY r.kind, r.name)) AS name_id
    FROM _graph_spans AS r
    LEFT JOIN own_names AS n ON n.trace_id = r.trace_id AND n.kind = r.kind AND n.name = r.name
),
work AS (
    SELECT w.trace_id, s.name_id, w.phase, w.event_id
    FROM span_gpu_work AS w
    JOIN numbered AS s ON s.trace_id = w.trace_id AND s.event_id = w.span_id
    GROUP BY w.trace_id, s.name_id, w.phase, w.event_id
    UNION ALL
    SELECT trace_id, name_id, 'replay', event_id FROM replayed_names
),
timed AS (
    SELECT
        w.trace_id, w.name_id, w.phase, k.event_id, k.duration_ns, k.start_ns, greatest(k.end_ns, k.start_ns) AS end_ns
    FROM work AS w
    JOIN kernels AS k ON k.trace_id = w.trace_id AND k.event_id = w.event_id
),
reached AS (
    SELECT
        *,
        max(end_ns) OVER (
            PARTITION BY trace_id, name_id, phase ORDER BY start_ns, event_id
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS reached_ns
    FROM timed
),
summed AS (
    SELECT
        trace_id, name_id, phase, count(*) AS n, sum(duration_ns) AS sum_ns,
        sum(greatest(end_ns - greatest(start_ns, coalesce(reached_ns, start_ns)), 0)) AS busy_ns
    FROM reached
    GROUP BY trace_id, name_id, phase
),
named AS (
    SELECT trace_id, name_id, kind, name, family, count(*) AS n_spans, sum(duration_ns) AS host_ns
    FROM numbered
    GROUP BY trace_id, name_id, kind, name, family
    UNION ALL
    SELECT DISTINCT trace_id, name_id, kind, name, family, 0, CAST(NULL AS BIGINT)
    FROM replayed_names
    WHERE own_name_id IS NULL
),
measured AS (
    SELECT DISTINCT trace_id FROM kernels
)
SELECT
    c.trace_id,  -- The trace.
    c.kind,  -- step, annotation, module or task.
    c.name,  -- The name, as in spans.
    c.family,  -- The name without its number.
    -- fwd, bwd, recompute, bwd_direct or window; replay: repeated by a graph captured in such a span; NULL where no GPU
    -- work belongs to the name.
    w.phase,
    c.n_spans,  -- Spans of the name; 0 where the graph was captured in another trace.
    -- Summed duration of the spans on the host, ns; NULL without any.
    TRY_CAST(c.host_ns AS BIGINT) AS host_ns,
    CASE WHEN m.trace_id IS NOT NULL THEN coalesce(w.n, 0) END AS n,  -- GPU activities; NULL in a trace without any.
    -- Summed duration of the activities, ns; NULL as n.
    CASE WHEN m.trace_id IS NOT NULL THEN TRY_CAST(coalesce(w.sum_ns, 0) AS BIGINT) END AS sum_ns,
    -- Time in which at least one activity ran, ns; NULL as n.
    CASE WHEN m.trace_id IS NOT NULL THEN TRY_CAST(coalesce(w.busy_ns, 0) AS BIGINT) END AS busy_ns
FROM named AS c
LEFT JOIN measured AS m ON m.trace_id = c.trace_id
LEFT JOIN summed AS w ON w.trace_id = c.trace_id AND w.name_id = c.name_id
