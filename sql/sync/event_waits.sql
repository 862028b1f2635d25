-- One row: a GPU-side wait for an event, matched to its record.
-- How: the join of _event_waits in the default profile.
-- check: unique(trace_id, wait_event_id)
SELECT
    trace_id,  -- The trace.
    wait_event_id,  -- The cuda_sync row that waits.
    record_event_id,  -- The call that recorded the event; NULL when it is not in the trace.
    source_kernel_id,  -- GPU work that has to end first; NULL when none was launched before the record.
    waiting_kernel_id,  -- GPU work that waits; NULL when the CPU waits (Event Sync) or nothing followed.
    wait_call_event_id,  -- The CPU call that waits or makes the stream wait.
    wait_kind  -- Stream Wait Event or Event Sync.
FROM _event_waits
WHERE profile = 'default'
