-- One row: a rank in a profiler step of a capture: a cell of the heat map.
-- How: a collective belongs to the step of its launch on the lane's reference rank. Collectives outside of steps are in
-- a row without a step.
-- scope: capture
-- check: unique(capture_id, step, rank)
WITH waits AS (
    SELECT
        r.capture_id, u.step, r.rank, count(*) AS n, sum(r.wait_ns) AS wait_ns,
        sum(CASE WHEN u.culprit_rank = r.rank THEN 1 ELSE 0 END) AS n_last,
        sum(CASE WHEN u.culprit_rank = r.rank THEN u.wait_ns ELSE 0 END) AS caused_wait_ns,
        sum(
            CASE
                WHEN u.culprit_clock_rank IS NULL THEN NULL WHEN u.culprit_clock_rank = r.rank THEN u.late_ns ELSE 0
            END
        ) AS marginal_ns
    FROM collective_ranks AS r
    JOIN collectives AS u ON u.capture_id = r.capture_id AND u.collective_id = r.collective_id
    WHERE u.refused_reason IS NULL
    GROUP BY r.capture_id, u.step, r.rank
),
times AS (
    SELECT
        r.capture_id, t.step, r.rank, max(t.duration_ns) AS step_ns, max(t.host_ns) AS host_ns,
        sum(t.busy_ns) AS busy_ns, sum(t.compute_ns) AS compute_ns
    FROM capture_ranks AS r
    JOIN step_times AS t ON t.trace_id = r.trace_id
    WHERE r.left_out_reason IS NULL
    GROUP BY r.capture_id, t.step, r.rank
)
SELECT
    coalesce(w.capture_id, t.capture_id) AS capture_id,  -- The capture.
    coalesce(w.step, t.step) AS step,  -- Number of the step; NULL for collectives outside of steps.
    coalesce(w.rank, t.rank) AS rank,  -- The rank.
    t.step_ns,  -- Length of the step on the rank, ns, as in step_times; NULL where the rank has no such step.
    t.host_ns,  -- Duration of the step's annotation on the rank's host, ns.
    TRY_CAST(t.compute_ns AS BIGINT) AS compute_ns,  -- Time with compute kernels in the step, ns.
    TRY_CAST(t.busy_ns AS BIGINT) AS busy_ns,  -- Time with any GPU work in the step, ns.
    coalesce(w.n, 0) AS n_collectives,  -- Matched collectives of the step.
    TRY_CAST(w.wait_ns AS BIGINT) AS wait_ns,  -- Waiting for other ranks in these collectives, ns; NULL without any.
    -- Waiting of other ranks in collectives whose culprit is this rank, ns.
    TRY_CAST(w.caused_wait_ns AS BIGINT) AS caused_wait_ns,
    -- Time saved if only this rank were on time, ns; NULL where clocks are not aligned.
    TRY_CAST(w.marginal_ns AS BIGINT) AS marginal_ns,
    CAST(w.n_last AS BIGINT) AS n_last,  -- Collectives whose culprit is this rank.
    100 * (w.n_last / CAST(w.n AS DOUBLE)) AS last_percent  -- n_last in percent of n_collectives, 0 to 100.
FROM waits AS w
FULL JOIN times AS t ON t.capture_id = w.capture_id AND t.step = w.step AND t.rank = w.rank
