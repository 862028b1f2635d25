-- Question: What is the GPU time of a capture spent on, and what does it cost?
-- Reading: The rows of a capture add up to all paid GPU time. Prices come from `prices.csv` in the lake's folder;
-- without this file, they are NULL.
SELECT
    c.job, c.capture_id, o.cause, round(o.gpu_seconds, 3) AS gpu_seconds, round(o.percent, 1) AS percent, o.price,
    o.currency
FROM capture_costs AS o
JOIN captures AS c ON o.capture_id = c.capture_id
ORDER BY c.started_at DESC, c.capture_id, o.gpu_ns DESC, o.cause
