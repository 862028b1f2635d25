-- One row: a cause of the length of a trace, or of one of its steps, by name.
-- check: unique(trace_id, step, cause, name)
SELECT
    trace_id,  -- The trace.
    -- The step; NULL for the whole trace.
    CASE WHEN window_id <> 'full' THEN TRY_CAST(replace(window_id, 'ProfilerStep#', '') AS BIGINT) END AS step,
    cause,  -- The cause, in cause_kinds.
    name,  -- The operator, annotation, function, … it is named after.
    sum(times) AS times,  -- Events with such time.
    sum(duration_ns) AS duration_ns  -- Its time on the path, ns.
FROM causes
GROUP BY trace_id, window_id, cause, name
