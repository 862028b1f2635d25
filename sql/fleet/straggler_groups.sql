-- One row: a group of ranks of a role of parallelism (dp, tp, pp): what its ranks waited and what they caused.
-- How: sums of straggler_ranks over the group's ranks; a rank is in one group of each role.
-- scope: capture
-- check: unique(capture_id, role, group_name)
SELECT
    g.capture_id,  -- The capture.
    g.role,  -- dp, tp, pp, cp, ep or what the user's table says.
    g.group_name,  -- The group.
    count(*) AS n_ranks,  -- Ranks of the group that are in the capture.
    TRY_CAST(sum(s.wait_ns) AS BIGINT) AS wait_ns,  -- Waiting of its ranks, ns.
    TRY_CAST(sum(s.caused_wait_ns) AS BIGINT) AS caused_wait_ns,  -- Waiting in collectives whose culprit is one of its ranks, ns.
    sum(s.caused_percent) AS caused_percent,  -- That in percent of all waiting.
    TRY_CAST(sum(s.marginal_ns) AS BIGINT) AS marginal_ns,  -- Time saved if one of its ranks at a time were on time, ns; NULL where clocks are not aligned.
    max(g.rank) FILTER (WHERE g.place = 1 AND s.caused_wait_ns IS NOT NULL) AS worst_rank,  -- Its rank that caused most; NULL where no collective is matched.
    bool_or(s.is_straggler) AS has_straggler,  -- One of its ranks is a straggler.
    bool_or(s.culprit_uncertain) AS culprit_uncertain  -- Durations and clocks name different culprits too often, or there are no clocks to ask.
FROM (
    SELECT
        r.capture_id, r.role, r.group_name, r.rank,
        row_number() OVER (
            PARTITION BY r.capture_id, r.role, r.group_name ORDER BY c.caused_wait_ns DESC NULLS LAST, r.rank
        ) AS place
    FROM capture_roles AS r
    LEFT JOIN straggler_ranks AS c ON c.capture_id = r.capture_id AND c.rank = r.rank
) AS g
LEFT JOIN straggler_ranks AS s ON s.capture_id = g.capture_id AND s.rank = g.rank
GROUP BY g.capture_id, g.role, g.group_name
