-- model: _path_rules
-- One row: a kind of edge of a path in a profile, and what bounds it.
-- How: of bound_rules that match, the one with the lowest rank; matched once per kind and not once per edge.
WITH last_ranks AS (
    SELECT profile, max(rule_rank) + 1 AS last_rank
    FROM bound_by
    GROUP BY profile
),
-- One row: a rule of what an edge is bound by in a profile.
-- How: the rules of bound_by and, behind them all, the label of each type of edge in edge_types.
bound_rules AS (
    SELECT
        profile,  -- hta or default.
        edge_type,  -- Type of the edge.
        side,  -- cpu, gpu, outside, or * for any, as in bound_by.
        class,  -- Class of the attributed kernel; * for any.
        bound_by,  -- The label.
        rule_rank  -- Of the rules that match, the one with the lowest rank is used.
    FROM bound_by
    UNION ALL
    SELECT p.profile, t.edge_type, '*', '*', t.bound_by, p.last_rank
    FROM last_ranks AS p
    CROSS JOIN edge_types AS t
),
profiles AS (
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
    JOIN bound_rules AS b
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
WHERE choice = 1;

-- model: _edge_bounds
-- One row: an edge of the dependency graph of a window, and what it is bound by where a path runs over it.
-- How: the attributed event's side and class choose the rule in _path_rules.
SELECT
    e.window_no,  -- The window.
    e.edge_id,  -- The edge.
    r.bound_by  -- What it is bound by.
FROM _edges AS e
JOIN _asked_windows AS w ON w.window_no = e.window_no
LEFT JOIN _gpu_classes AS g ON g.window_no = e.window_no AND g.event_id = e.attributed_event_id
JOIN _path_rules AS r
    ON r.profile = w.profile AND r.edge_code = e.edge_code AND r.class = coalesce(g.class, '*')
        AND r.side = CASE
            WHEN e.waits_for_earlier_work THEN 'outside'
            WHEN e.attributed_event_id IS NULL THEN '*'
            WHEN g.event_id IS NULL THEN 'cpu'
            ELSE 'gpu'
        END;
