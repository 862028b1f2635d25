-- One row: a group of ranks in a role of parallelism (dp, tp, pp), with the time that its ranks waited and the waiting
-- that they caused.
-- How: sums of straggler_ranks over the group's ranks; a rank may be in several groups of one role.
-- scope: capture
-- check: unique(capture_id, role, group_name)
SELECT
    g.capture_id,  -- The capture.
    g.role,  -- dp, tp, pp, cp, ep or a role from the user's table.
    g.group_name,  -- The group.
    count(*) AS n_ranks,  -- Ranks of the group that are in the capture.
    TRY_CAST(sum(s.wait_ns) AS BIGINT) AS wait_ns,  -- Waiting of its ranks, ns.
    -- Waiting in collectives whose culprit is one of its ranks, ns.
    TRY_CAST(sum(s.caused_wait_ns) AS BIGINT) AS caused_wait_ns,
    sum(s.caused_percent) AS caused_percent,  -- caused_wait_ns in percent of all waiting.
    -- Summed time saved if one of its ranks at a time were on time, ns; NULL where clocks are not aligned.
    TRY_CAST(sum(s.marginal_ns) AS BIGINT) AS marginal_ns,
    -- The rank of the group that caused the most waiting; NULL where no collective is matched.
    max(g.rank) FILTER (WHERE g.ordinal = 1 AND s.caused_wait_ns IS NOT NULL) AS worst_rank,
    bool_or(s.is_straggler) AS has_straggler,  -- True if one of its ranks is a straggler.
    -- True if durations and clocks disagree on the culprit too often, or if clocks are not aligned.
    bool_or(s.culprit_uncertain) AS culprit_uncertain
FROM (
    SELECT
        r.capture_id, r.role, r.group_name, r.rank,
        row_number() OVER (
            PARTITION BY r.capture_id, r.role, r.group_name ORDER BY c.caused_wait_ns DESC NULLS LAST, r.rank
        ) AS ordinal
    FROM capture_roles AS r
    LEFT JOIN straggler_ranks AS c ON c.capture_id = r.capture_id AND c.rank = r.rank
) AS g
LEFT JOIN straggler_ranks AS s ON s.capture_id = g.capture_id AND s.rank = g.rank
GROUP BY g.capture_id, g.role, g.group_name
