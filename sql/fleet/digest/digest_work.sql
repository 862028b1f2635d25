-- One row: an operator and a kernel that it launched in a step of a trace, with the number of launches and their GPU
-- time.
-- How: the threshold('digest_work') rows with the most time in each step, and in the time outside of steps. The other
-- rows of a category are summed as (other operators), so the sums over steps and over categories include all GPU work.
-- `retention --keep digest` keeps this table when it drops the events.
-- scope: trace
-- check: unique(trace_id, step, operator, has_operator, category, cat, name)
WITH work AS (
    SELECT
        trace_id, step, operator, has_operator, category, cat, name, sum(n) AS n, sum(duration_ns) AS duration_ns
    FROM _compared_work
    GROUP BY trace_id, step, operator, has_operator, category, cat, name
),
placed AS (
    SELECT
        *,
        row_number() OVER (
            PARTITION BY trace_id, step ORDER BY duration_ns DESC, operator, category, cat, name
        ) > threshold('digest_work') AS is_small
    FROM work
)
SELECT
    trace_id,  -- The trace.
    step,  -- Number of the profiler step; NULL outside of steps.
    -- The operator that launched the work; in parentheses, the reason why there is no operator, or a note that there
    -- are several.
    CASE WHEN is_small THEN '(other operators)' ELSE operator END AS operator,
    has_operator,  -- True if there is an operator.
    category,  -- communication, a family of op_kinds (gemm, attention, elementwise, …) or other.
    cat,  -- kernel, gpu_memcpy or gpu_memset.
    CASE WHEN is_small THEN '(other kernels)' ELSE name END AS name,  -- Name of the kernel, memcpy or memset.
    TRY_CAST(sum(n) AS BIGINT) AS n,  -- Number of GPU activities.
    TRY_CAST(sum(duration_ns) AS BIGINT) AS duration_ns  -- Summed duration of the work, ns.
FROM placed
GROUP BY
    trace_id, step, CASE WHEN is_small THEN '(other operators)' ELSE operator END, has_operator, category, cat,
    CASE WHEN is_small THEN '(other kernels)' ELSE name END
