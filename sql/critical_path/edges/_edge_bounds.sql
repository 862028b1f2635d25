-- model: _path_rules
-- One row: a kind of path edge in a profile, with its bound.
-- How: the matching rule of bound_rules with the lowest rank applies. Rules are matched once per kind of edge, not once
-- per edge.
WITH last_ranks AS (
    SELECT profile, max(rule_rank) + 1 AS last_rank
    FROM bound_by
    GROUP BY profile
),
-- One row: a rule for the bound of an edge in a profile.
-- How: the rules of bound_by, followed by the label of each edge type in edge_types.
bound_rules AS (
    SELECT
        profile,  -- hta or default.
        edge_type,  -- Type of the edge.
        side,  -- cpu, gpu, outside, or * for any, as in bound_by.
        class,  -- Class of the attributed kernel; * for any.
        bound_by,  -- The label.
        rule_rank  -- Rank; the matching rule with the lowest rank applies.
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
    side,  -- cpu, gpu, outside, or * if the edge's time belongs to no event.
    class,  -- Class of the GPU work that the time belongs to; * for other edges.
    bound_by  -- The label.
FROM ruled
WHERE choice = 1;

-- model: _edge_bounds
-- One row: an edge of the dependency graph of a window, and its bound if it is on a path.
-- How: the attributed event's side and class choose the rule in _path_rules.
SELECT
    e.window_no,  -- The window.
    e.edge_id,  -- The edge.
    r.bound_by  -- Bound of the edge.
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
