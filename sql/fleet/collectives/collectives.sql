-- One row: a collective that all ranks of its lane have in the capture.
-- How: the culprit is the rank with the shortest kernel, because all other ranks waited for it. By the clock, it is the
-- rank that started last. Bandwidths are computed as in nccl-tests, in decimal GB/s.
-- scope: capture
-- check: unique(capture_id, collective_id)
WITH ranked AS (
    SELECT
        r.*,
        row_number() OVER (PARTITION BY r.capture_id, r.collective_id ORDER BY r.duration_ns, r.rank) AS by_duration,
        CASE
            WHEN r.aligned_start_ns IS NOT NULL
                THEN row_number() OVER (
                    PARTITION BY r.capture_id, r.collective_id ORDER BY r.aligned_start_ns DESC NULLS LAST, r.rank
                )
        END AS by_clock,
        row_number() OVER (
            PARTITION BY r.capture_id, r.collective_id
            ORDER BY
                CASE WHEN r.rank = l.reference_rank THEN 0 ELSE 1 END, r.rank
        ) AS by_reference,
        max(r.aligned_end_ns) OVER (
            PARTITION BY r.capture_id, r.lane, r.rank
            ORDER BY r.aligned_start_ns
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS left_ns,
        CASE
            WHEN r.aligned_start_ns IS NOT NULL
                THEN (count(*) OVER (PARTITION BY r.capture_id, r.collective_id) + 1) // 2 + 1
        END AS by_clock_of_median,
        k.kind, k.collective_name, k.bytes, k.group_size, l.group_name, l.refused_reason
    FROM collective_ranks AS r
    JOIN collective_kernels AS k ON k.trace_id = r.trace_id AND k.event_id = r.event_id
    JOIN collective_groups AS l ON l.capture_id = r.capture_id AND l.lane = r.lane AND l.rank = r.rank
),
gathered AS (
    SELECT
        capture_id, collective_id, lane,
        max(kind) FILTER (WHERE by_reference = 1) AS kind,
        max(step) FILTER (WHERE by_reference = 1) AS step,
        max(collective_name) AS collective_name, max(group_name) AS group_name, max(group_size) AS group_size,
        max(bytes) AS bytes, count(*) AS n_ranks, min(duration_ns) AS transfer_ns,
        TRY_CAST(sum(wait_ns) AS BIGINT) AS wait_ns,
        TRY_CAST(sum(wait_clock_ns) AS BIGINT) AS wait_clock_ns,
        max(rank) FILTER (WHERE by_duration = 1) AS culprit_rank,
        max(rank) FILTER (WHERE by_clock = 1) AS culprit_clock_rank,
        max(aligned_start_ns) FILTER (
            WHERE by_clock = 1
        ) - max(aligned_start_ns) FILTER (WHERE by_clock = 2) AS late_ns,
        max(aligned_start_ns) FILTER (WHERE by_clock = 1) AS last_ns,
        max(aligned_start_ns) FILTER (WHERE by_clock = by_clock_of_median) AS median_ns,
        max(left_ns) FILTER (WHERE by_clock = 1) AS left_ns,
        max(aligned_end_ns) - min(aligned_end_ns) AS end_skew_ns,
        max(aligned_start_ns) - min(aligned_start_ns) AS start_skew_ns,
        max(root_rank) AS root_rank, bool_and(kept) AS kept, max(matched_by) AS matched_by,
        max(refused_reason) AS refused_reason
    FROM ranked
    GROUP BY capture_id, collective_id, lane
),
kinds AS (
    SELECT DISTINCT kind, bus_numerator FROM collective_kinds
)
SELECT
    g.capture_id,  -- The capture.
    g.collective_id,  -- Number of the collective in the capture, in the order of lanes and then of time.
    g.lane,  -- The lane, in collective_groups.
    g.step,  -- Profiler step of its launch on the lane's reference rank; NULL outside of steps.
    g.kind,  -- allreduce, reducescatter, allgather, alltoall, broadcast, sendrecv, reduce, gather, scatter or other.
    g.collective_name,  -- Name in the framework; NULL if not recorded.
    g.group_name,  -- Process group; NULL if not recorded.
    g.group_size,  -- Ranks in the process group; NULL if not recorded.
    g.bytes,  -- Bytes as nccl-tests counts them, the largest over all ranks; NULL if not recorded.
    g.n_ranks,  -- Participating ranks of the capture; fewer than group_size where ranks are missing.
    g.transfer_ns,  -- Transfer time: the shortest duration over all ranks, ns.
    g.wait_ns,  -- Waiting of all ranks together, ns (durations minus transfer).
    g.wait_clock_ns,  -- Waiting of all ranks together by the clock, ns; NULL where clocks are not aligned.
    g.culprit_rank,  -- Rank that the others waited for: the shortest duration, the lowest rank on ties.
    g.culprit_clock_rank,  -- Rank that started last by the clock; NULL where clocks are not aligned.
    -- Root of the waiting: the rank with the most busy time on the path back from the last rank to start, collective by
    -- collective, to the time of the lane's preceding collective. NULL where clocks are not aligned.
    g.root_rank,
    -- Time from the start of the second-to-last rank to the start of the last rank, ns: the saving if only the last
    -- rank were on time. NULL where clocks are not aligned.
    g.late_ns,
    -- Time to the last rank's start from the median start of the other ranks, or from the end of its own previous
    -- collective in the lane if that was later, ns. NULL where clocks are not aligned.
    CASE
        WHEN g.late_ns IS NOT NULL
            THEN greatest(g.last_ns - greatest(g.median_ns, coalesce(g.left_ns, g.median_ns)), 0)
    END AS late_of_median_ns,
    g.start_skew_ns,  -- From the first start to the last, ns; NULL where clocks are not aligned.
    -- From the first end to the last, ns: an error measure of the match, the clocks and the bandwidths; NULL where
    -- clocks are not aligned.
    g.end_skew_ns,
    -- bytes divided by transfer_ns, decimal GB/s; NULL where bytes are unknown.
    CAST(g.bytes AS DOUBLE) / nullif(g.transfer_ns, 0) AS algorithm_gigabytes_per_s,
    -- The algorithm bandwidth times nccl-tests' factor for the kind, decimal GB/s, comparable with hardware bandwidth;
    -- NULL where bytes or the group's size are unknown.
    CAST(g.bytes AS DOUBLE) / nullif(g.transfer_ns, 0)
    * CASE WHEN k.bus_numerator = 0 THEN 1e0 ELSE k.bus_numerator * (
                g.group_size - 1e0
            ) / nullif(g.group_size, 0)
    END AS bus_gigabytes_per_s,
    g.matched_by,  -- Weakest evidence for its match, as in collective_groups.
    g.kept,  -- True if the collective is used to align the clocks, because all ranks left it together.
    g.refused_reason  -- Why the lane's collectives are not used; NULL where they are.
FROM gathered AS g
JOIN kinds AS k ON k.kind = g.kind
