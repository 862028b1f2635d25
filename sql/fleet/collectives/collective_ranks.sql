-- One row: a rank in a matched collective.
-- How: the shortest duration over all ranks is transfer. Extra time on a rank is waiting, which needs no clock. By the
-- clock, a rank waits from its own start to the last rank's start.
-- scope: capture
-- check: unique(capture_id, collective_id, rank)
WITH matched AS (
    SELECT
        f.capture_id, f.lane, f.instance, f.rank, f.trace_id, f.event_id, f.kept, f.matched_by, f.aligned_start_ns,
        f.aligned_end_ns, f.root_rank, k.start_ns, k.duration_ns, k.step
    FROM _fitted_kernels AS f
    JOIN collective_kernels AS k ON k.trace_id = f.trace_id AND k.event_id = f.event_id
),
numbered AS (
    SELECT
        capture_id, lane, instance,
        row_number() OVER (PARTITION BY capture_id ORDER BY lane, instance) - 1 AS collective_id
    FROM matched
    GROUP BY capture_id, lane, instance
)
SELECT
    m.capture_id,  -- The capture.
    n.collective_id,  -- Number of the collective in the capture.
    m.rank,  -- The rank.
    m.trace_id,  -- Trace of the rank.
    m.event_id,  -- Position of its kernel in traceEvents.
    m.lane,  -- The lane, in collective_groups.
    m.step,  -- Profiler step of the rank in which the kernel was launched; NULL outside of steps.
    m.start_ns,  -- Start on the rank's own clock, ns.
    m.duration_ns,  -- Duration, ns.
    -- Waiting for other ranks: duration minus the shortest duration, ns.
    m.duration_ns - min(m.duration_ns) OVER (PARTITION BY m.capture_id, m.lane, m.instance) AS wait_ns,
    m.aligned_start_ns,  -- Start on the clock of the lowest rank, ns; NULL where clocks are not aligned.
    m.aligned_end_ns,  -- End on the clock of the lowest rank, ns; NULL where clocks are not aligned.
    -- Waiting for other ranks: from the rank's own start to the last rank's start, ns, subject to clock error; NULL
    -- where clocks are not aligned.
    max(m.aligned_start_ns) OVER (PARTITION BY m.capture_id, m.lane, m.instance) - m.aligned_start_ns AS wait_clock_ns,
    -- From the last rank's start to the rank's own end, ns; NULL where clocks are not aligned.
    m.aligned_end_ns - max(m.aligned_start_ns) OVER (
        PARTITION BY m.capture_id, m.lane, m.instance
    ) AS transfer_clock_ns,
    -- Root of the collective's waiting: the rank with the most busy time on the path back from the last rank to start,
    -- collective by collective, to the time of the lane's preceding collective. NULL where clocks are not aligned.
    m.root_rank,
    m.matched_by,  -- Weakest evidence for the collective's match, as in collective_groups.
    m.kept  -- True if the collective is used to align the clocks.
FROM matched AS m
JOIN numbered AS n ON n.capture_id = m.capture_id AND n.lane = m.lane AND n.instance = m.instance
