-- Question: How far are the clocks of the ranks apart, and how well is that known?
-- Reading: The order of two ranks' times is certain only if they differ by at least the sum of their errors. A refused
-- rank has no corrected time.
SELECT
    c.job, c.capture_id, o.rank, round(o.offset_ns / 1e3, 1) AS offset_us, round(o.error_ns / 1e3, 1) AS error_us,
    round(o.drift_ppm, 1) AS drift_ppm, o.method, o.refused, o.refused_reason
FROM clock_offsets AS o
JOIN captures AS c ON o.capture_id = c.capture_id
ORDER BY c.started_at DESC, c.capture_id, o.rank
