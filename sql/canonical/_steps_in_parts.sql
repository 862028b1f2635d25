-- One row: a profiler step and a part of time that it overlaps.
-- How: parts are at least twice as long as the step, so the step overlaps at most two of them. An event is compared
-- only with the steps in its own part, so the cost per event does not grow with the number of steps.
-- check: unique(trace_id, step, part)
WITH steps AS (
    SELECT
        trace_id, step, start_ns, end_ns,
        CAST(pow(2, ceil(ln(greatest(duration_ns, 1)) / ln(2)) + 1) AS BIGINT) AS part_ns
    FROM profiler_steps
),
parts AS (
    SELECT *, start_ns // part_ns AS part FROM steps
    UNION ALL
    SELECT *, end_ns // part_ns AS part FROM steps WHERE end_ns // part_ns > start_ns // part_ns
)
SELECT
    trace_id,  -- The trace.
    step,  -- Number of the step.
    start_ns,  -- Start of the step on the CPU, ns.
    end_ns,  -- End of the step on the CPU, ns.
    part_ns,  -- Length of the part, ns.
    part  -- Number of the part, which begins at part * part_ns.
FROM parts
