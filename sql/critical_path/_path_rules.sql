-- One row: a kind of edge of a path in a profile, and what bounds it.
-- How: of the rules of _bound_by that match, the one with the lowest rank; matched once per kind and not once per edge.
WITH profiles AS (
    SELECT DISTINCT profile FROM bound_by
),
sides AS (
    SELECT '*' AS side
    UNION ALL
    SELECT 'cpu'
    UNION ALL
    SELECT 'gpu'
    UNION ALL
    SELECT 'outside'
),
classes AS (
    SELECT '*' AS class
    UNION ALL
    SELECT DISTINCT class FROM kernel_classes
),
kinds AS (
    SELECT p.profile, t.edge_code, s.side, c.class
    FROM profiles AS p
    CROSS JOIN edge_types AS t
    CROSS JOIN sides AS s
    CROSS JOIN classes AS c
),
ruled AS (
    SELECT
        k.profile, k.edge_code, k.side, k.class, coalesce(b.bound_by, '') AS bound_by,
        row_number() OVER (PARTITION BY k.profile, k.edge_code, k.side, k.class ORDER BY b.rule_rank) AS choice
    FROM kinds AS k
    JOIN edge_types AS t ON t.edge_code = k.edge_code
    JOIN _bound_by AS b
        ON b.profile = k.profile AND b.edge_type = t.edge_type
            AND (b.side = '*' OR b.side = k.side) AND (b.class = '*' OR b.class = k.class)
)
SELECT
    profile,  -- hta or default.
    edge_code,  -- Type of the edge.
    side,  -- cpu, gpu, outside, or * where the edge's time belongs to no event.
    class,  -- Class of the GPU work whose time it is; * for other edges.
    bound_by  -- The label.
FROM ruled
WHERE choice = 1
