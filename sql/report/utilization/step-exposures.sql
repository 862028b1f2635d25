-- Question: How much of each step's communication is exposed, without waiting for other ranks?
-- Reading: One row per rank and step.
SELECT
    x.rank, x.step, x.exposure_ratio, x.exposed_transfer_percent AS exposed_communication_percent, x.exposed_wait_ns
FROM step_exposure AS x
JOIN captures AS c ON x.capture_id = c.capture_id
ORDER BY x.rank, x.step
