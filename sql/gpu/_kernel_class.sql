-- One row: a distinct category and name of GPU work, with its class in a profile.
-- How: the matching rule in rules/kernel_classes.csv with the lowest rule_order decides (first_kernel_classes).
WITH names AS (
    SELECT DISTINCT e.cat, e.name
    FROM events AS e
    LEFT JOIN category_sides AS s ON s.cat = e.cat
    WHERE s.side IN ('gpu', 'sync') OR e.stream IS NOT NULL
),
profiles AS (
    SELECT DISTINCT profile FROM kernel_classes
),
fitting AS (
    SELECT n.cat, n.name, p.profile, first_kernel_classes(p.profile, n.cat, coalesce(n.name, '')) AS rule_order
    FROM names AS n
    CROSS JOIN profiles AS p
)
SELECT
    f.profile,  -- hta or default.
    f.cat,  -- Canonical category.
    f.name,  -- Name of the GPU work; NULL if it has none.
    r.class,  -- Its class, in class_kinds; RUNTIME for a call with a stream argument.
    r.rule_id  -- Rule in kernel_classes that decided the class.
FROM fitting AS f
JOIN kernel_classes AS r ON r.profile = f.profile AND r.rule_order = f.rule_order
