-- One row: a wait of a stream or a call for an event, matched to the event record and to the GPU work on both sides.
-- How: the rows of _event_waits in the default profile. evidence names the facts that the trace states for each wait.
-- check: unique(trace_id, wait_event_id)
SELECT
    p.trace_id,  -- The trace.
    -- The cuda_sync row of the wait, or the call that makes a stream wait if the trace has no such row.
    w.wait_event_id,
    w.record_event_id,  -- The call that recorded the event; NULL if it is unknown or not in the trace.
    w.source_kernel_id,  -- GPU work that must end first; NULL if it is unknown or none was launched before the record.
    w.waiting_kernel_id,  -- GPU work that waits; NULL if the CPU waits (Event Sync) or no work followed.
    w.wait_call_event_id,  -- The CPU call that waits or makes the stream wait.
    w.wait_kind,  -- Stream Wait Event or Event Sync.
    -- The rule (wait_rules): record_and_stream (the row states both), cuda_event (a cuda_event row shows the rest),
    -- record (the row states the record, and its stream is inferred), stream (the row states the stream, and the record
    -- is the last of its thread before the wait), calls (that last record, with an inferred stream), or none (no record
    -- precedes the wait, or the record's call is not in the trace).
    w.evidence,
    w.is_inferred  -- The record or the stream is inferred.
FROM _event_waits AS w
JOIN _profiles AS p ON p.trace_profile_id = w.trace_profile_id
WHERE p.profile = 'default' AND w.is_best
