-- Question: What is the GPU time of all ranks spent on?
-- Reading: The rows of a capture add up to its span multiplied by its number of GPUs.
SELECT x.cause, x.gpu_ns, x.percent, x.price, x.currency
FROM capture_costs AS x
JOIN captures AS c ON x.capture_id = c.capture_id
WHERE x.gpu_ns IS NOT NULL
ORDER BY x.gpu_ns DESC, x.cause
