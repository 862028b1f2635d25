-- One row: a category and name of host events in a step of a trace, with their number and self time.
-- How: the threshold('digest_host') rows with the most time in each step, and in the time outside of steps. The other
-- rows of a category are summed as (other events). `retention --keep digest` keeps this table when it drops the events.
-- scope: trace
-- check: unique(trace_id, step, cat, name)
WITH placed AS (
    SELECT
        *,
        row_number() OVER (
            PARTITION BY trace_id, step ORDER BY self_ns DESC, cat, name
        ) > threshold('digest_host') AS is_small
    FROM _compared_host
)
SELECT
    trace_id,  -- The trace.
    step,  -- Number of the profiler step in which the events started; NULL outside of steps.
    cat,  -- cpu_op, cuda_runtime, user_annotation, python_function, …; NULL if not recorded.
    CASE WHEN is_small THEN '(other events)' ELSE name END AS name,  -- Name of the events.
    TRY_CAST(sum(n) AS BIGINT) AS n,  -- Number of events.
    TRY_CAST(sum(self_ns) AS BIGINT) AS self_ns  -- Self time of the events, ns.
FROM placed
GROUP BY trace_id, step, cat, CASE WHEN is_small THEN '(other events)' ELSE name END
