-- One row: a finding that limits the conclusions from a capture.
-- How: findings about the capture's files, refused lanes, refused clocks, unmatched kernels, dropped collectives, and
-- contradicting evidence. A lane is a process group, or a stream if the trace names no group (collective_groups). The
-- fit computes clock offsets from the ends of matched collectives (clock_offsets). It drops a collective that the ranks
-- left at different times.
-- scope: capture
WITH refused_lanes AS (
    SELECT
        capture_id, lane, refused_reason, count(*) AS n
    FROM _fitted_lanes
    WHERE refused_reason IS NOT NULL
    GROUP BY capture_id, lane, refused_reason
),
refused_clocks AS (
    SELECT
        capture_id, refused_reason, count(*) AS n
    FROM _fitted_clocks
    WHERE refused_reason IS NOT NULL
    GROUP BY capture_id, refused_reason
),
-- shift is one number for all kernels of a rank in a lane (collective_groups). It is NULL if kernels in the middle have
-- no partner, so that no single shift fits, or if sequence numbers match the kernels.
used_lanes AS (
    SELECT
        capture_id, lane, rank, n_kernels - n_matched AS n_unmatched,
        bool_or(shift IS NULL) OVER (PARTITION BY capture_id, lane) AS has_gaps,
        bool_and(matched_by = 'sequence_number') OVER (PARTITION BY capture_id, lane) AS is_numbered
    FROM _fitted_lanes
    WHERE refused_reason IS NULL
),
dropped AS (
    SELECT k.capture_id, k.lane, count(DISTINCT k.instance) AS n
    FROM _fitted_kernels AS k
    JOIN _fitted_lanes AS l ON l.capture_id = k.capture_id AND l.lane = k.lane AND l.rank = k.rank
    WHERE NOT k.kept AND l.refused_reason IS NULL
    GROUP BY k.capture_id, k.lane
)
SELECT
    CAST(capture_id AS VARCHAR) AS capture_id,  -- The capture.
    -- Kind of finding: missing_ranks, rank_twice, other_job, other_jobs_in_folder, no_rank, no_world_size,
    -- refused_lane, refused_clock, unmatched_kernels, dropped_collectives, or contradicting_evidence.
    CAST(check_name AS VARCHAR) AS check_name,
    CAST(severity AS VARCHAR) AS severity,  -- info or warning.
    CAST(n AS BIGINT) AS n,  -- Number of items that the finding is about.
    CAST(detail AS VARCHAR) AS detail  -- Human-readable description of the finding.
FROM _staged_capture_quality
UNION ALL
SELECT
    capture_id, 'refused_lane', CASE WHEN starts_with(refused_reason, 'no_partner') THEN 'info' ELSE 'warning' END, n,
    'collectives of lane ' || lane || ' are not used: ' || refused_reason
FROM refused_lanes
UNION ALL
SELECT
    capture_id, 'refused_clock', CASE WHEN starts_with(refused_reason, 'no_') THEN 'info' ELSE 'warning' END, n,
    CASE WHEN n = 1 THEN 'the clock of 1 rank is' ELSE 'clocks of ' || n || ' ranks are' END || ' not aligned: '
    || refused_reason
FROM refused_clocks
UNION ALL
SELECT
    capture_id, 'unmatched_kernels', 'info', n_unmatched,
    'rank ' || rank || ', lane ' || lane || CASE
        WHEN has_gaps AND is_numbered THEN ': at least one rank has no kernels with their sequence numbers'
        WHEN has_gaps
            THEN ': in some steps not all ranks have as many kernels, so these are not matched'
        ELSE ': the first or last kernels have no partner on at least one rank'
    END
FROM used_lanes
WHERE n_unmatched > 0
UNION ALL
SELECT
    capture_id, 'dropped_collectives', 'info', n,
    'lane ' || lane || ': the ranks left ' || n || CASE WHEN n = 1 THEN ' collective' ELSE ' collectives' END
    || ' at different times; the clocks are fitted without ' || CASE WHEN n = 1 THEN 'it' ELSE 'them' END
FROM dropped
UNION ALL
SELECT
    c.capture_id, 'contradicting_evidence', 'warning', c.n,
    'rank ' || c.rank || ', lane ' || c.lane || ': ' || c.matched_by || ' matches ' || c.n || ' kernels, of which '
    || c.against || ' says otherwise' || CASE WHEN l.refused_reason IS NULL THEN '' ELSE '; the lane is refused' END
FROM _fitted_contradictions AS c
JOIN _fitted_lanes AS l ON l.capture_id = c.capture_id AND l.lane = c.lane AND l.rank = c.rank
