-- Question: How much exposed communication is waiting for late ranks, and how much is transfer?
-- Reading: One row per rank and device; the parts add up to the communication that is not overlapped with compute.
-- Waiting disappears if the late rank is on time (`stragglers`). Transfer disappears if it is overlapped or faster. In
-- `unsplit_ns`, the two cannot be distinguished, because the collectives are not matched or not used (`capture_quality`
-- contains the reason). If the reason is that the other ranks of the job are not in the lake, `wait_ns` and
-- `transfer_ns` are NULL. Without exposed communication, there is nothing to distinguish, and all three are 0.
-- Words: exposed communication, straggler, overlap
WITH parts AS (
    SELECT
        c.job, c.started_at, c.capture_id, g.rank, g.device, g.cause, g.gpu_ns, g.hidden_ns,
        -- Unknown only if there is communication: a job of one process has none, and its traces often have no world
        -- size.
        coalesce(c.n_ranks = 1 AND coalesce(c.world_size, 2) > 1, FALSE)
        AND bool_or(
            g.cause IN ('straggler_wait', 'exposed_communication', 'unsplit_communication')
            AND coalesce(g.gpu_ns, 0) > 0
        ) OVER (PARTITION BY g.capture_id) AS is_alone
    FROM gpu_time_by_cause AS g
    JOIN captures AS c ON g.capture_id = c.capture_id
    WHERE g.device IS NOT NULL
)
SELECT
    job, capture_id, rank, device,
    CAST(
        sum(
            CASE WHEN is_alone THEN NULL WHEN cause = 'straggler_wait' THEN coalesce(gpu_ns - hidden_ns, 0) ELSE 0 END
        ) AS BIGINT
    ) AS wait_ns,
    CAST(
        sum(
            CASE WHEN is_alone THEN NULL WHEN cause = 'exposed_communication' THEN coalesce(gpu_ns, 0) ELSE 0 END
        ) AS BIGINT
    ) AS transfer_ns,
    CAST(
        sum(
            CASE
                WHEN cause = 'unsplit_communication' OR is_alone AND cause = 'exposed_communication'
                    THEN coalesce(gpu_ns, 0)
                ELSE 0
            END
        ) AS BIGINT
    ) AS unsplit_ns
FROM parts
GROUP BY job, started_at, capture_id, rank, device
ORDER BY started_at DESC, capture_id, rank, device
