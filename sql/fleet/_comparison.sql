-- One row: a name (and shape, if requested) with its counts and times on two sides, control and test.
-- How: an outer join of two sums, a missing side counts as 0; changes are in counts, as in HTA's ops_diff (2.18).
WITH sums AS (
    SELECT
        c.side, o.device, o.cat, o.name,
        CASE WHEN c.by_shape THEN o.input_dims END AS input_dims,
        CASE WHEN c.by_shape THEN o.input_types END AS input_types,
        sum(o.n) AS n, sum(o.duration_ns) AS duration_ns
    FROM compared AS c
    JOIN ops_by_shape AS o ON o.trace_id = c.trace_id AND (c.every_step OR o.step IS NOT DISTINCT FROM c.step)
    GROUP BY
        c.side, o.device, o.cat, o.name, CASE WHEN c.by_shape THEN o.input_dims END,
        CASE WHEN c.by_shape THEN o.input_types END
),
sides AS (
    SELECT
        device, cat, name, input_dims, input_types,
        coalesce(sum(n) FILTER (WHERE side = 'control'), 0) AS control_n,
        coalesce(sum(n) FILTER (WHERE side = 'test'), 0) AS test_n,
        coalesce(sum(duration_ns) FILTER (WHERE side = 'control'), 0) AS control_ns,
        coalesce(sum(duration_ns) FILTER (WHERE side = 'test'), 0) AS test_ns
    FROM sums
    GROUP BY device, cat, name, input_dims, input_types
)
SELECT
    device,  -- cpu or gpu.
    cat,  -- Category.
    name,  -- Name.
    input_dims,  -- Sizes of the inputs, as JSON; NULL where shapes are not recorded or not requested.
    input_types,  -- Types of the inputs, as JSON; NULL where shapes are not recorded or not requested.
    CAST(control_n AS BIGINT) AS control_n,  -- How many in control.
    CAST(test_n AS BIGINT) AS test_n,  -- How many in test.
    CAST(test_n - control_n AS BIGINT) AS diff_n,  -- How many more in test.
    TRY_CAST(control_ns AS BIGINT) AS control_ns,  -- Their summed duration in control, ns.
    TRY_CAST(test_ns AS BIGINT) AS test_ns,  -- Their summed duration in test, ns.
    TRY_CAST(test_ns - control_ns AS BIGINT) AS diff_ns,  -- How much longer in test, ns.
    CASE
        WHEN control_n = 0 THEN 'added'
        WHEN test_n = 0 THEN 'deleted'
        WHEN test_n > control_n THEN 'increased'
        WHEN test_n < control_n THEN 'decreased'
        ELSE 'unchanged'
    END AS change  -- By counts: added, deleted, increased, decreased or unchanged.
FROM sides
