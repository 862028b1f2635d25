-- One row: a rank of a capture in a group, for each role of parallelism.
-- How: the user's table (roles.csv in the lake's folder) assigns the roles that it names. Other roles are derived from
-- process groups whose description contains the role (rules/group_roles.csv).
-- scope: capture
-- check: unique(capture_id, role, group_name, rank)
WITH told_roles AS (
    SELECT DISTINCT capture_id, role FROM _staged_capture_roles
),
described AS (
    SELECT DISTINCT l.capture_id, l.group_name, l.group_ranks, l.group_description, l.rank
    FROM collective_groups AS l
    WHERE l.group_description IS NOT NULL
),
read AS (
    SELECT d.capture_id, g.role, d.group_name || ' ' || coalesce(d.group_ranks, '') AS group_name, d.rank
    FROM described AS d
    JOIN group_roles AS g ON regexp_matches(lower(d.group_description), g.pattern)
    QUALIFY row_number() OVER (PARTITION BY d.capture_id, d.group_name, d.group_ranks, d.rank ORDER BY g.rule_order) = 1
)
SELECT
    CAST(capture_id AS VARCHAR) AS capture_id,  -- The capture.
    CAST(role AS VARCHAR) AS role,  -- dp, tp, pp, cp, ep or a role from the user's table.
    -- The group: the user's name for it, or the name and ranks of the process group.
    CAST(group_name AS VARCHAR) AS group_name,
    CAST(rank AS BIGINT) AS rank,  -- The rank.
    TRUE AS by_user  -- True if the user's table assigns the role, false if it is derived from a process group.
FROM _staged_capture_roles
UNION ALL
SELECT r.capture_id, r.role, r.group_name, r.rank, FALSE
FROM read AS r
LEFT JOIN told_roles AS t ON t.capture_id = r.capture_id AND t.role = r.role
WHERE t.role IS NULL
