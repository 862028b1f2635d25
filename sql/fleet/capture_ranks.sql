-- One row: a trace of a capture.
-- scope: capture
-- check: unique(capture_id, trace_id)
SELECT
    CAST(capture_id AS VARCHAR) AS capture_id,  -- The capture.
    CAST(rank AS BIGINT) AS rank,  -- Rank; NULL where nothing tells.
    CAST(trace_id AS VARCHAR) AS trace_id,  -- The trace.
    CAST(left_out AS VARCHAR) AS left_out  -- Why it takes no part: rank_twice, other_job or no_rank; NULL for the rank's trace.
FROM _staged_capture_ranks
