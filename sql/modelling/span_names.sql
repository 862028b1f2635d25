-- One row: a name of spans and the GPU work in a phase of all of them together.
-- How: like span_kernels, over all spans of the name; work in several of them (a name nested in itself) counts once.
-- check: unique(trace_id, kind, name, phase)
WITH numbered AS (
    SELECT
        trace_id, event_id, kind, name, family, dur_ns,
        min(event_id) OVER (PARTITION BY trace_id, kind, name) AS name_id
    FROM _span_events
),
work AS (
    SELECT w.trace_id, s.name_id, w.phase, w.event_id
    FROM span_gpu_work AS w
    JOIN numbered AS s ON s.trace_id = w.trace_id AND s.event_id = w.span_id
    GROUP BY w.trace_id, s.name_id, w.phase, w.event_id
),
timed AS (
    SELECT w.trace_id, w.name_id, w.phase, k.event_id, k.dur_ns, k.ts_ns, greatest(k.end_ns, k.ts_ns) AS end_ns
    FROM work AS w
    JOIN kernels AS k ON k.trace_id = w.trace_id AND k.event_id = w.event_id
),
reached AS (
    SELECT
        *,
        max(end_ns) OVER (
            PARTITION BY trace_id, name_id, phase ORDER BY ts_ns, event_id
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS reached_ns
    FROM timed
),
summed AS (
    SELECT
        trace_id, name_id, phase, count(*) AS n, sum(dur_ns) AS sum_ns,
        sum(greatest(end_ns - greatest(ts_ns, coalesce(reached_ns, ts_ns)), 0)) AS busy_ns
    FROM reached
    GROUP BY trace_id, name_id, phase
),
named AS (
    SELECT trace_id, name_id, kind, name, family, count(*) AS n_spans, sum(dur_ns) AS host_ns
    FROM numbered
    GROUP BY trace_id, name_id, kind, name, family
)
SELECT
    c.trace_id,  -- The trace.
    c.kind,  -- step, annotation, module or task.
    c.name,  -- The name, as in spans.
    c.family,  -- The name without its number.
    w.phase,  -- fwd, bwd, recompute, bwd_direct or window; NULL where no GPU work belongs to the name.
    c.n_spans,  -- Spans of the name.
    TRY_CAST(c.host_ns AS BIGINT) AS host_ns,  -- Their summed duration on the host, ns.
    coalesce(w.n, 0) AS n,  -- Pieces of GPU work.
    TRY_CAST(coalesce(w.sum_ns, 0) AS BIGINT) AS sum_ns,  -- Their summed duration, ns.
    TRY_CAST(coalesce(w.busy_ns, 0) AS BIGINT) AS busy_ns  -- Time in which at least one of them ran, ns.
FROM named AS c
LEFT JOIN summed AS w ON w.trace_id = c.trace_id AND w.name_id = c.name_id
