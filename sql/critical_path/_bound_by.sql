-- One row: a rule of what an edge is bound by in a profile.
-- How: the rules of bound_by and, behind them all, the label of each type of edge in edge_types.
WITH profiles AS (
    SELECT profile, max(rule_rank) + 1 AS last_rank
    FROM bound_by
    GROUP BY profile
)
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
FROM profiles AS p
CROSS JOIN edge_types AS t
