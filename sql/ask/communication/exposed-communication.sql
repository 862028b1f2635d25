-- Question: How much exposed communication is waiting for late ranks, and how much is transfer?
-- Reading: One row per rank and device; the parts add up to the communication that is not overlapped with compute.
-- Waiting disappears if the late rank is on time (`stragglers`). Transfer disappears if it is overlapped or faster. In
-- `unsplit_ns`, the two cannot be distinguished, because the collectives are not matched or not used
-- (`capture_quality` contains the reason).
-- Words: exposed communication, straggler, overlap
SELECT
    c.job, c.capture_id, g.rank, g.device,
    CAST(
        sum(CASE WHEN g.cause = 'straggler_wait' THEN coalesce(g.gpu_ns - g.hidden_ns, 0) ELSE 0 END) AS BIGINT
    ) AS wait_ns,
    CAST(
        sum(CASE WHEN g.cause = 'exposed_communication' THEN coalesce(g.gpu_ns, 0) ELSE 0 END) AS BIGINT
    ) AS transfer_ns,
    CAST(
        sum(CASE WHEN g.cause = 'unsplit_communication' THEN coalesce(g.gpu_ns, 0) ELSE 0 END) AS BIGINT
    ) AS unsplit_ns
FROM gpu_time_by_cause AS g
JOIN captures AS c ON g.capture_id = c.capture_id
WHERE g.device IS NOT NULL
GROUP BY c.job, c.started_at, c.capture_id, g.rank, g.device
ORDER BY c.started_at DESC, c.capture_id, g.rank, g.device
