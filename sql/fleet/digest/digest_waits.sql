-- One row: the collectives of a kind and group on a rank in a step of a capture, with their time and waiting.
-- How: sums over collective_ranks, for the threshold('digest_waits') groups with the most time in each step of a rank.
-- The other groups of a kind are summed as (other groups). `retention --keep digest` keeps this table when it drops the
-- collectives.
-- scope: capture
-- check: unique(capture_id, rank, step, kind, group_name)
WITH sums AS (
    SELECT
        r.capture_id, r.rank, r.step, c.kind, coalesce(c.group_name, '(no name)') AS group_name, count(*) AS n,
        sum(c.bytes) AS bytes, sum(r.duration_ns) AS duration_ns,
        sum(CASE WHEN c.refused_reason IS NULL THEN r.wait_ns END) AS wait_ns,
        sum(CASE WHEN c.refused_reason IS NULL THEN r.wait_clock_ns END) AS wait_clock_ns,
        sum(
            CASE WHEN c.refused_reason IS NOT NULL THEN NULL WHEN c.culprit_rank = r.rank THEN c.wait_ns ELSE 0 END
        ) AS caused_wait_ns
    FROM collective_ranks AS r
    JOIN collectives AS c ON c.capture_id = r.capture_id AND c.collective_id = r.collective_id
    GROUP BY r.capture_id, r.rank, r.step, c.kind, coalesce(c.group_name, '(no name)')
),
placed AS (
    SELECT
        capture_id, rank, step, kind, n, bytes, duration_ns, wait_ns, wait_clock_ns, caused_wait_ns,
        CASE
            WHEN
                row_number() OVER (
                    PARTITION BY capture_id, rank, step ORDER BY duration_ns DESC, kind, group_name
                ) > threshold('digest_waits')
                THEN '(other groups)'
            ELSE group_name
        END AS group_name
    FROM sums
)
SELECT
    capture_id,  -- The capture.
    rank,  -- The rank.
    step,  -- Profiler step of the rank in which the kernels were launched; NULL outside of steps.
    kind,  -- Kind of the collectives, as in collectives.
    group_name,  -- Process group.
    TRY_CAST(sum(n) AS BIGINT) AS n,  -- Number of collectives.
    TRY_CAST(sum(bytes) AS BIGINT) AS bytes,  -- Bytes as nccl-tests counts them; NULL if not recorded.
    TRY_CAST(sum(duration_ns) AS BIGINT) AS duration_ns,  -- Summed duration on the rank, ns.
    -- Waiting of the rank for other ranks, ns; NULL if the collectives are not used (capture_quality: refused_lane).
    TRY_CAST(sum(wait_ns) AS BIGINT) AS wait_ns,
    -- wait_ns by the clock, ns; NULL where clocks are not aligned, or if the collectives are not used.
    TRY_CAST(sum(wait_clock_ns) AS BIGINT) AS wait_clock_ns,
    -- Waiting of other ranks for this rank, ns; NULL if the collectives are not used.
    TRY_CAST(sum(caused_wait_ns) AS BIGINT) AS caused_wait_ns
FROM placed
GROUP BY capture_id, rank, step, kind, group_name
