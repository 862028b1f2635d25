-- One row: a trace of a capture.
-- scope: capture
-- check: unique(capture_id, trace_id)
SELECT
    CAST(capture_id AS VARCHAR) AS capture_id,  -- The capture.
    CAST(rank AS BIGINT) AS rank,  -- Rank; NULL where unknown.
    CAST(trace_id AS VARCHAR) AS trace_id,  -- The trace.
    -- Why the trace is excluded: rank_twice, other_job or no_rank; NULL for the trace that counts for its rank.
    CAST(left_out_reason AS VARCHAR) AS left_out_reason
FROM _staged_capture_ranks
