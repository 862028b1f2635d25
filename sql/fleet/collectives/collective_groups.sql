-- One row: a rank in a lane. A lane is a process group, or a stream where the trace names no group; kernels are matched
-- only within their lane. The sends and receives of a group are a separate lane.
-- How: the best available evidence matches the kernels (pipelines/fleet/collectives/pairing.py).
-- scope: capture
-- check: unique(capture_id, lane, rank)
SELECT
    capture_id,  -- The capture.
    lane,  -- Number of the lane; streams first, in the order of their first start.
    rank,  -- The rank.
    group_name,  -- Process group; NULL for a stream.
    group_ranks,  -- Ranks of the group, as written in the trace.
    group_description,  -- Description of the group, from its creator.
    n_kernels,  -- Kernels of the rank in the lane, without kernels of negative duration, which are not matched.
    n_matched,  -- Collectives of the lane that all of its ranks have.
    -- Kernels of the rank that some rank of the lane does not have, mostly at the edges of the capture.
    n_kernels - n_matched AS n_unmatched,
    -- Weakest evidence for the rank's matches, best first: sequence_number; step_order, the n-th call of the group in
    -- the step of the same name, if counts agree; file_order, the n-th call in the file or between better matches, if
    -- counts agree; shared_clock, the only order in which all calls of a match overlap; spread, the order in which the
    -- ends differ least. NULL where refused.
    matched_by,
    reference_rank,  -- Rank that the other ranks are matched with; NULL if sequence numbers match all kernels.
    -- The rank's kernel i is the reference's kernel i + shift; NULL if that is untrue for some of its kernels, or if
    -- sequence numbers match all kernels.
    shift,
    spread_ns,  -- Spread (1.4826 MAD) of the differences of ends from the reference at this shift, ns.
    runner_up_ns,  -- Spread at the next best shift, ns; NULL if there is none.
    contradiction_ns,  -- Time by which the hard bounds of the clocks contradict each other, ns.
    refused_reason  -- Why the lane's collectives are not used; NULL where they are.
FROM _fitted_lanes
