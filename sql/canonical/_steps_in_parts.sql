-- One row: a part of time in which a profiler step lies.
-- How: parts are at least twice as long as the step, so it lies in two of them at most, and what happens at some time
-- meets only the steps in the same part: however many steps there are, it costs no more.
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
    part  -- Its number: it begins at part * part_ns.
FROM parts
