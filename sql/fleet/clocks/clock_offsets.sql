-- One row: a rank of a capture, with the offset of its GPU's clock from the clock of the lowest rank that has an
-- offset. To compare times across ranks, subtract offset_ns and report error_ns with the result.
-- How: median polish of the ends of matched collectives, clipped to hard bounds. The bounds follow from the fact that
-- no rank leaves a collective before the last rank has arrived (pipelines/fleet/clocks/clock_offsets.py). For ranks on
-- one host, the shortest launch delays yield a second estimate.
-- scope: capture
-- check: unique(capture_id, rank)
WITH devices AS (
    SELECT trace_id, count(*) AS n_devices FROM min_launch_latency GROUP BY trace_id
),
ranks AS (
    SELECT r.capture_id, r.rank, t.host, f.floor_ns, f.device
    FROM capture_ranks AS r
    JOIN traces AS t ON t.trace_id = r.trace_id
    LEFT JOIN min_launch_latency AS f ON f.trace_id = r.trace_id
    LEFT JOIN devices AS d ON d.trace_id = r.trace_id
    WHERE r.left_out_reason IS NULL AND coalesce(d.n_devices, 1) = 1
),
hosts AS (
    SELECT
        capture_id,
        count(DISTINCT host) = 1 AND count(host) = count(*) OR count(host) = 0 AND count(
            DISTINCT device
        ) = count(*) AS is_one
    FROM ranks
    GROUP BY capture_id
),
lowest AS (
    SELECT c.capture_id, r.floor_ns
    FROM _fitted_clocks AS c
    LEFT JOIN ranks AS r ON r.capture_id = c.capture_id AND r.rank = c.rank
    QUALIFY row_number() OVER (PARTITION BY c.capture_id ORDER BY c.offset_ns IS NULL, c.rank) = 1
)
SELECT
    c.capture_id,  -- The capture.
    c.rank,  -- The rank.
    c.offset_ns,  -- Time by which the rank's clock is ahead of the lowest rank's clock, ns; NULL where refused.
    -- Error bar of the offset: 2 standard errors, ns; with methods one_file and shared_clock, plus the absolute value
    -- of estimate_ns.
    c.error_ns,
    c.drift_ppm,  -- Slope of the residuals over time, parts per million: mostly noise, see drift_applied.
    -- True if aligned times include the drift, because it is significant: over 5 standard errors, in more than a second
    -- and more than one step.
    c.drift_applied,
    c.n_matched,  -- Collectives used to estimate the offset.
    -- collective_ends; or if the offset is 0 and not fitted, one_file (the ranks are processes of one export) or
    -- shared_clock (the ends are too noisy to fit, and the ranks are on one host, or their hosts are unknown and their
    -- clocks agree within the noise). NULL where refused.
    c.method,
    c.refused_reason AS refused,  -- Same as refused_reason.
    c.refused_reason,  -- Why there is no offset; NULL if there is an offset.
    -- Offset estimated from the ends alone, ns; with method collective_ends, offset_ns is this value clipped to the
    -- bounds.
    c.estimate_ns,
    c.low_ns,  -- Hard lower bound of the offset, ns; NULL where nothing bounds it.
    c.high_ns,  -- Hard upper bound of the offset, ns; NULL where nothing bounds it.
    -- True if the estimate from the ends alone was outside the bounds.
    c.estimate_ns <> c.offset_ns AND c.method = 'collective_ends' AS is_clipped,
    c.sigma_ns,  -- Noise of the rank's ends (1.4826 MAD of the residuals), ns.
    c.max_residual_ns,  -- Largest residual of the collectives used to align the clocks, ns.
    c.contradiction_ns,  -- Time by which the hard bounds contradict each other, ns; above 50 us, no clock is aligned.
    -- Second estimate of the offset: shortest launch delay minus the shortest launch delay of the same lowest rank, ns;
    -- NULL unless both ranks use one GPU and the ranks are known to be on one host (same host name, or no host names
    -- but a different device each).
    CASE WHEN h.is_one THEN r.floor_ns - l.floor_ns END AS launch_floor_offset_ns
FROM _fitted_clocks AS c
LEFT JOIN ranks AS r ON r.capture_id = c.capture_id AND r.rank = c.rank
LEFT JOIN hosts AS h ON h.capture_id = c.capture_id
LEFT JOIN lowest AS l ON l.capture_id = c.capture_id
