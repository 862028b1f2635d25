-- One row: a rank in a lane. A lane is a process group, or a stream where the trace names no group; its kernels are
-- matched among themselves.
-- How: matched by the best evidence that there is (pipelines/fleet/collectives/pairing.py).
-- scope: capture
-- check: unique(capture_id, lane, rank)
SELECT
    capture_id,  -- The capture.
    lane,  -- Number of the lane; streams first, in the order of their first start.
    rank,  -- The rank.
    group_name,  -- Process group; NULL for a stream.
    group_ranks,  -- Ranks of the group, as written in the trace.
    group_description,  -- Description of the group, as its creator gave it.
    n_kernels,  -- Kernels of the rank in the lane.
    n_matched,  -- Collectives that all ranks of the lane have.
    n_kernels - n_matched AS n_unmatched,  -- Kernels of the rank that not all ranks have: at the edges of the capture.
    -- The weakest evidence that the rank's matches rest on, best first: sequence_number; step_order, the n-th call of
    -- the group in the step of the same name, where counts agree; file_order, the n-th in the file or between better
    -- matches, where counts agree; shared_clock, the only order in which all calls of a match overlap; spread, the
    -- order in which their ends differ least. NULL where refused.
    matched_by,
    reference_rank,  -- Rank that the others are matched with; NULL where sequence numbers matched all.
    -- The rank's kernel i is the reference's kernel i + shift; NULL where not all of its kernels are, or where sequence
    -- numbers matched all.
    shift,
    spread_ns,  -- Spread (1.4826 MAD) of the differences of ends from the reference at this shift, ns.
    runner_up_ns,  -- The same at the next best shift; NULL where there is none.
    contradiction_ns,  -- How far the hard bounds of the clocks contradict each other, ns.
    refused_reason  -- Why the lane's collectives are not used; NULL where they are.
FROM _fitted_lanes
