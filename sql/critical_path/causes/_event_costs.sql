-- One row: a category of host events in a trace of PyTorch's profiler, and the cost of recording one such event.
-- How: the cost in the trace's metadata (measured by tracelake.record), else the cost in profiler_costs. Traces of
-- other writers have no rows: only Kineto writes schemaVersion.
-- check: unique(trace_id, cat)
WITH categories AS (
    SELECT trace_id, cat
    FROM events
    WHERE duration_ns IS NOT NULL AND start_ns IS NOT NULL
    GROUP BY trace_id, cat
),
written AS (
    SELECT trace_id, json_extract(metadata, '$.tracelake_profiler_cost') AS measured
    FROM traces
    WHERE starts_with(format, 'json') AND json_exists(metadata, '$.schemaVersion')
),
recorded AS (
    SELECT
        c.trace_id, c.cat, p.kind, p.cost_ns, p.cost_without_calls_ns, p.inside,
        TRY_CAST(json_extract_string(w.measured, '$.' || p.kind || '_ns') AS DOUBLE) AS measured_ns,
        TRY_CAST(json_extract_string(w.measured, '$.cheap_operator_ns') AS DOUBLE) AS measured_delay_ns,
        bool_or(p.kind = 'call') OVER (PARTITION BY c.trace_id) AS has_calls,
        bool_or(p.kind = 'operator') OVER (PARTITION BY c.trace_id) AS has_operators
    FROM categories AS c
    JOIN profiler_costs AS p ON p.cat = c.cat
    JOIN written AS w ON w.trace_id = c.trace_id
)
SELECT
    trace_id,  -- The trace.
    cat,  -- The category.
    -- Number of its kind: 0 operator, 1 call, 2 frame, 3 annotation.
    list_position(['operator', 'call', 'frame', 'annotation'], kind) - 1 AS kind_no,
    -- Cost of recording one event, ns, on a host whose speed delay_ns describes. A cost in the file is ignored if it is
    -- negative, 1 s or more, or not a number.
    CASE
        WHEN measured_ns >= 0 AND measured_ns < 1e9 THEN measured_ns
        WHEN has_calls THEN cost_ns
        ELSE cost_without_calls_ns
    END AS cost_ns,
    inside,  -- Share of the cost that falls between the event's start and its end.
    -- Delay between the starts of the cheapest operators on that host, ns.
    CASE
        WHEN measured_delay_ns >= 0 AND measured_delay_ns < 1e9 THEN measured_delay_ns
        ELSE threshold('cheap_operator_ns')
    END AS delay_ns
FROM recorded
WHERE has_operators
