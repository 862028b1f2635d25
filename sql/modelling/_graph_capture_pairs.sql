-- One row: a trace with graph replays and a trace that may show how the graphs were captured: itself, or one that the
-- user gave for it.
-- check: unique(trace_id, capture_trace_id)
SELECT
    trace_id,  -- The trace with the replays.
    trace_id AS capture_trace_id  -- The trace to look in.
FROM _graph_sequences
GROUP BY trace_id
UNION
SELECT trace_id, capture_trace_id
FROM _graph_capture_traces
