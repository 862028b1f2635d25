-- One row: a name (with `shape`, and shapes of inputs) of a comparison with its count and time on two sides.
-- How: an outer join of two sums, a missing side counts as 0. The rows of a comparison by anything but `host` add up to
-- all GPU time of its windows, by `cause` and `owner` to their length.
-- check: unique(part, by_what, cat, name, input_dims, input_types)
WITH told AS (
    SELECT
        c.part, c.by_what, c.side, w.n, w.duration_ns,
        CASE WHEN c.by_what = 'kernel' THEN w.cat WHEN c.by_what = 'work' THEN w.category END AS cat,
        CASE
            WHEN c.by_what IN ('operator', 'shape', 'work') THEN w.operator
            WHEN c.by_what = 'category' THEN w.category
            WHEN c.by_what = 'module' THEN w.module
            ELSE w.name
        END AS name,
        CASE WHEN c.by_what = 'shape' THEN w.input_dims END AS input_dims,
        CASE WHEN c.by_what = 'shape' THEN w.input_types END AS input_types
    FROM compared AS c
    JOIN _compared_work AS w ON w.trace_id = c.trace_id AND (c.step IS NULL OR w.step = c.step)
    WHERE c.by_what NOT IN ('host', 'cause', 'owner')
    UNION ALL
    SELECT
        c.part, c.by_what, c.side, w.times, w.duration_ns, CASE WHEN c.by_what = 'owner' THEN w.cause END,
        CASE WHEN c.by_what = 'owner' THEN w.name ELSE w.cause END, NULL, NULL
    FROM compared AS c
    JOIN _compared_causes AS w ON w.trace_id = c.trace_id AND w.step IS NOT DISTINCT FROM c.step
    WHERE c.by_what IN ('cause', 'owner')
    UNION ALL
    SELECT c.part, c.by_what, c.side, h.n, h.self_ns, h.cat, h.name, NULL, NULL
    FROM compared AS c
    JOIN _compared_host AS h ON h.trace_id = c.trace_id AND (c.step IS NULL OR h.step = c.step)
    WHERE c.by_what = 'host'
),
sides AS (
    SELECT
        part, by_what, cat, name, input_dims, input_types,
        coalesce(sum(n) FILTER (WHERE side = 'control'), 0) AS control_n,
        coalesce(sum(n) FILTER (WHERE side = 'test'), 0) AS test_n,
        coalesce(sum(duration_ns) FILTER (WHERE side = 'control'), 0) AS control_ns,
        coalesce(sum(duration_ns) FILTER (WHERE side = 'test'), 0) AS test_ns
    FROM told
    GROUP BY part, by_what, cat, name, input_dims, input_types
)
SELECT
    part,  -- Which windows are compared, as in compared.
    by_what,  -- What they are compared by, as in compared.
    -- cpu of the host, else gpu; NULL by cause, of which some are the host's.
    CASE WHEN by_what = 'host' THEN 'cpu' WHEN by_what NOT IN ('cause', 'owner') THEN 'gpu' END AS device,
    -- Category of the events; by `work` that of the work, as by category; by `owner` the cause; NULL unless by those or
    -- of the host.
    cat,
    name,  -- Name.
    input_dims,  -- Sizes of the inputs, as JSON; NULL unless by shape, and where shapes are not recorded.
    input_types,  -- Types of the inputs, as JSON; NULL unless by shape, and where they are not recorded.
    CAST(control_n AS BIGINT) AS control_n,  -- How many in control.
    CAST(test_n AS BIGINT) AS test_n,  -- How many in test.
    CAST(test_n - control_n AS BIGINT) AS diff_n,  -- How many more in test.
    TRY_CAST(control_ns AS BIGINT) AS control_ns,  -- Their time in control, ns.
    TRY_CAST(test_ns AS BIGINT) AS test_ns,  -- Their time in test, ns.
    TRY_CAST(test_ns - control_ns AS BIGINT) AS diff_ns,  -- How much longer in test, ns.
    -- By time: added, deleted, increased, decreased, or unchanged where it is within
    -- threshold('compare_unchanged_percent') % of the longer side.
    CASE
        WHEN control_n = 0 THEN 'added'
        WHEN test_n = 0 THEN 'deleted'
        WHEN
            100 * abs(test_ns - control_ns)
            <= threshold('compare_unchanged_percent') * greatest(control_ns, test_ns)
            THEN 'unchanged'
        WHEN test_ns > control_ns THEN 'increased'
        ELSE 'decreased'
    END AS change
FROM sides
