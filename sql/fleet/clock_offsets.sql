-- One row: a rank of a capture: how its GPU's clock stands to that of the lowest rank. To compare times of ranks, take offset_ns from them, and keep error_ns beside the result.
-- How: median polish of the ends of matched collectives, put into the hard bounds of arrival before leaving (pipelines/fleet/clocks.py). Beside it, for ranks of one host, the difference of the shortest launch delays.
-- scope: capture
-- check: unique(capture_id, rank)
WITH devices AS (
    SELECT trace_id, count(*) AS n_devices FROM launch_floors GROUP BY trace_id
),
ranks AS (
    SELECT r.capture_id, r.rank, t.host, f.floor_ns, f.device
    FROM capture_ranks AS r
    JOIN traces AS t ON t.trace_id = r.trace_id
    LEFT JOIN launch_floors AS f ON f.trace_id = r.trace_id
    LEFT JOIN devices AS d ON d.trace_id = r.trace_id
    WHERE r.left_out IS NULL AND coalesce(d.n_devices, 1) = 1
),
hosts AS (
    SELECT
        capture_id,
        count(DISTINCT host) = 1 AND count(host) = count(*) OR count(host) = 0 AND count(DISTINCT device) = count(*) AS is_one
    FROM ranks
    GROUP BY capture_id
),
lowest AS (
    SELECT capture_id, floor_ns FROM ranks QUALIFY row_number() OVER (PARTITION BY capture_id ORDER BY rank) = 1
)
SELECT
    c.capture_id,  -- The capture.
    c.rank,  -- The rank.
    c.offset_ns,  -- What its clock shows more than the lowest rank's, ns; NULL where refused.
    c.error_ns,  -- Error bar of the offset: 2 standard errors, ns.
    c.drift_ppm,  -- Slope of the residuals over time, parts per million: mostly noise, see drift_applied.
    c.drift_applied,  -- The drift is real enough to count in aligned times: over 5 standard errors in more than a second and more than one step.
    c.n_matched,  -- Collectives that the offset rests on.
    c.method,  -- collective_ends; NULL where refused.
    c.refused,  -- Why there is no offset; NULL where there is one.
    c.estimate_ns,  -- The offset by the ends alone, ns; offset_ns is this put into the bounds.
    c.low_ns,  -- Hard lower bound of the offset, ns; NULL where nothing bounds it.
    c.high_ns,  -- Hard upper bound of the offset, ns; NULL where nothing bounds it.
    c.estimate_ns <> c.offset_ns AS is_clipped,  -- The ends alone said what the bounds do not allow.
    c.sigma_ns,  -- Noise of the rank's ends (1.4826 MAD of the residuals), ns.
    c.max_residual_ns,  -- Largest residual of the collectives that were kept, ns.
    c.contradiction_ns,  -- How far the hard bounds contradict each other, ns; over 50 us nothing is aligned.
    CASE WHEN h.is_one THEN r.floor_ns - l.floor_ns END AS launch_floor_offset_ns  -- Second estimate: shortest launch delay less the lowest rank's, ns; NULL where the ranks are not known to be of one host (same host name, or none and a device each).
FROM _fitted_clocks AS c
LEFT JOIN ranks AS r ON r.capture_id = c.capture_id AND r.rank = c.rank
LEFT JOIN hosts AS h ON h.capture_id = c.capture_id
LEFT JOIN lowest AS l ON l.capture_id = c.capture_id
