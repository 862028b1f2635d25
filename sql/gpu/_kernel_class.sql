-- One row: a distinct (category, name) of GPU work with its class in a profile.
-- How: of the rules in rules/kernel_classes.csv that match, the one with the lowest rule_order wins.
WITH names AS (
    SELECT DISTINCT e.cat, e.name
    FROM events AS e
    LEFT JOIN category_sides AS s ON s.cat = e.cat
    WHERE s.side IN ('gpu', 'sync') OR e.stream IS NOT NULL
),
fitting AS (
    SELECT
        n.cat, n.name, r.profile, r.class, r.rule_id,
        row_number() OVER (PARTITION BY n.cat, n.name, r.profile ORDER BY r.rule_order) AS choice
    FROM names AS n
    JOIN kernel_classes AS r ON regexp_matches(n.cat, r.cat_pattern) AND regexp_matches(n.name, r.name_pattern)
)
SELECT
    profile,  -- hta or default.
    cat,  -- Canonical category.
    name,  -- Name of the GPU work.
    class,  -- COMPUTATION, COMMUNICATION, MEMORY, SYNCHRONIZATION or OTHER; RUNTIME for a call with a stream argument.
    rule_id  -- Rule that decided.
FROM fitting
WHERE choice = 1
