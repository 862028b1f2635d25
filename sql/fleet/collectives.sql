-- One row: a collective that all ranks of its lane have in the capture.
-- How: culprit: the rank whose kernel was shortest, for all others waited for it; by the clock: the rank that started last. Bandwidths as nccl-tests has them, in decimal GB/s.
-- scope: capture
-- check: unique(capture_id, collective_id)
WITH ranked AS (
    SELECT
        r.*,
        row_number() OVER (PARTITION BY r.capture_id, r.collective_id ORDER BY r.dur_ns, r.rank) AS by_duration,
        CASE
            WHEN r.aligned_start_ns IS NOT NULL
                THEN row_number() OVER (
                    PARTITION BY r.capture_id, r.collective_id ORDER BY r.aligned_start_ns DESC NULLS LAST, r.rank
                )
        END AS by_clock,
        row_number() OVER (
            PARTITION BY r.capture_id, r.collective_id ORDER BY CASE WHEN r.rank = l.reference_rank THEN 0 ELSE 1 END, r.rank
        ) AS by_reference,
        k.kind, k.collective_name, k.bytes, k.group_size, l.group_name, l.refused
    FROM collective_ranks AS r
    JOIN collective_kernels AS k ON k.trace_id = r.trace_id AND k.event_id = r.event_id
    JOIN collective_lanes AS l ON l.capture_id = r.capture_id AND l.lane = r.lane AND l.rank = r.rank
),
gathered AS (
    SELECT
        capture_id, collective_id, lane,
        max(kind) FILTER (WHERE by_reference = 1) AS kind,
        max(step) FILTER (WHERE by_reference = 1) AS step,
        max(collective_name) AS collective_name, max(group_name) AS group_name, max(group_size) AS group_size,
        max(bytes) AS bytes, count(*) AS n_ranks, min(dur_ns) AS transfer_ns, TRY_CAST(sum(wait_ns) AS BIGINT) AS wait_ns,
        TRY_CAST(sum(wait_clock_ns) AS BIGINT) AS wait_clock_ns,
        max(rank) FILTER (WHERE by_duration = 1) AS culprit_rank,
        max(rank) FILTER (WHERE by_clock = 1) AS culprit_clock_rank,
        max(aligned_start_ns) FILTER (WHERE by_clock = 1) - max(aligned_start_ns) FILTER (WHERE by_clock = 2) AS late_ns,
        max(aligned_end_ns) - min(aligned_end_ns) AS end_skew_ns,
        max(aligned_start_ns) - min(aligned_start_ns) AS start_skew_ns,
        bool_and(kept) AS kept, max(refused) AS refused
    FROM ranked
    GROUP BY capture_id, collective_id, lane
)
SELECT
    g.capture_id,  -- The capture.
    g.collective_id,  -- Number of the collective in the capture, in the order of lanes and then of time.
    g.lane,  -- The lane, in collective_lanes.
    g.step,  -- Profiler step of its launch on the lane's reference rank; NULL outside of steps.
    g.kind,  -- allreduce, reducescatter, allgather, alltoall, broadcast, sendrecv, reduce, gather, scatter or other.
    g.collective_name,  -- Name in the framework; NULL where the trace does not tell.
    g.group_name,  -- Process group; NULL where the trace does not tell.
    g.group_size,  -- Ranks in the process group; NULL where the trace does not tell.
    g.bytes,  -- Bytes as nccl-tests counts them, the largest of all ranks; NULL where the trace does not tell.
    g.n_ranks,  -- Ranks of the capture in it; fewer than group_size where ranks are missing.
    g.transfer_ns,  -- Transfer: the shortest duration of all ranks, ns.
    g.wait_ns,  -- Waiting of all ranks together, ns (durations less transfer).
    g.wait_clock_ns,  -- Waiting of all ranks together by the clock, ns; NULL where clocks are not aligned.
    g.culprit_rank,  -- Rank that the others waited for: the shortest duration; the lowest of equal ones.
    g.culprit_clock_rank,  -- Rank that started last by the clock; NULL where clocks are not aligned.
    g.late_ns,  -- How much later it started than the last but one, ns: what is gained if only it is on time; NULL where clocks are not aligned.
    g.start_skew_ns,  -- From the first start to the last, ns; NULL where clocks are not aligned.
    g.end_skew_ns,  -- From the first end to the last, ns: the quality of the match and of the clocks, and so of the bandwidths; NULL where clocks are not aligned.
    CAST(g.bytes AS DOUBLE) / nullif(g.transfer_ns, 0) AS algorithm_gbps,  -- Bytes over transfer, decimal GB/s; NULL where bytes are unknown.
    CAST(g.bytes AS DOUBLE) / nullif(g.transfer_ns, 0)
    * CASE WHEN k.bus_numerator = 0 THEN 1.0 ELSE k.bus_numerator * (g.group_size - 1.0) / nullif(g.group_size, 0) END AS bus_gbps,  -- The same times nccl-tests' factor of the kind, decimal GB/s: comparable with the hardware's; NULL where bytes or the group's size are unknown.
    g.kept,  -- It counts for the clocks: all ranks left it together.
    g.refused  -- Why the lane's collectives are not used; NULL where they are.
FROM gathered AS g
JOIN collective_kinds AS k ON k.kind = g.kind
