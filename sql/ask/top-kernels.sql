-- Topic: GPU time
-- Question: Which kernels take the most GPU time?
-- Reading: Times of kernels that run at once are added up, so the shares are of kernel time, not of the span. A large
-- `max` beside a small `median` is a kernel that waits (collectives) or has several shapes.
SELECT
    k.name, any_value(k.class) AS class, count(*) AS n, round(sum(k.duration_ns) / 1e6, 2) AS total_ms,
    round(100 * sum(k.duration_ns) / sum(sum(k.duration_ns)) OVER (), 1) AS percent,
    round(median(k.duration_ns) / 1e3, 1) AS median_us, round(max(k.duration_ns) / 1e3, 1) AS max_us
FROM kernels AS k
JOIN traces AS t ON k.trace_id = t.trace_id
GROUP BY k.name
ORDER BY sum(k.duration_ns) DESC, k.name
