-- One row: a profiler step of a trace.
-- How: the CPU annotations ProfilerStep#N whose time is known. A step annotated on several threads runs from the first
-- start to the last end.
-- check: unique(trace_id, step)
WITH named AS (
    SELECT trace_id, TRY_CAST(replace(name, 'ProfilerStep#', '') AS BIGINT) AS step, start_ns, end_ns
    FROM events
    WHERE
        starts_with(name, 'ProfilerStep#') AND cat IN ('user_annotation', 'cpu_op') AND duration_ns IS NOT NULL
        AND start_ns IS NOT NULL
)
SELECT
    trace_id,  -- The trace.
    step,  -- Number of the step, from its name.
    min(start_ns) AS start_ns,  -- Start on the CPU, ns.
    max(end_ns) AS end_ns,  -- End on the CPU, ns.
    max(end_ns) - min(start_ns) AS duration_ns  -- Duration, ns.
FROM named
WHERE step IS NOT NULL
GROUP BY trace_id, step
