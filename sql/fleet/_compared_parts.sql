-- One row: a comparison of _comparison in short: the time of all its rows, and which of them changed and grew most.
-- check: unique(part, by_what)
WITH ranked AS (
    SELECT
        part, by_what, name, diff_ns, control_ns, test_ns,
        row_number() OVER (PARTITION BY part, by_what ORDER BY abs(diff_ns) DESC, name, cat, input_dims) AS by_change,
        row_number() OVER (PARTITION BY part, by_what ORDER BY diff_ns DESC, name, cat, input_dims) AS by_growth
    FROM _comparison
)
SELECT
    part,  -- Which windows are compared, as in compared.
    by_what,  -- What they are compared by, as in compared.
    TRY_CAST(sum(control_ns) AS BIGINT) AS control_ns,  -- Time of all rows in control, ns.
    TRY_CAST(sum(test_ns) AS BIGINT) AS test_ns,  -- Time of all rows in test, ns.
    max(CASE WHEN by_change = 1 THEN name END) AS changed_name,  -- What changed most.
    max(CASE WHEN by_change = 1 THEN diff_ns END) AS changed_ns,  -- By how much, ns.
    max(CASE WHEN by_growth = 1 THEN name END) AS grown_name,  -- What grew most.
    max(CASE WHEN by_growth = 1 THEN diff_ns END) AS grown_ns  -- By how much, ns; not above 0 where nothing grew.
FROM ranked
GROUP BY part, by_what
