-- One row: a GPU-side wait for an event, matched to the event record.
-- How: the rows of _event_waits in the default profile.
-- check: unique(trace_id, wait_event_id)
SELECT
    p.trace_id,  -- The trace.
    w.wait_event_id,  -- The cuda_sync row that waits.
    w.record_event_id,  -- The call that recorded the event; NULL when it is not in the trace.
    w.source_kernel_id,  -- GPU work that has to end first; NULL when none was launched before the record.
    w.waiting_kernel_id,  -- GPU work that waits; NULL when the CPU waits (Event Sync) or nothing followed.
    w.wait_call_event_id,  -- The CPU call that waits or makes the stream wait.
    w.wait_kind  -- Stream Wait Event or Event Sync.
FROM _event_waits AS w
JOIN _profiles AS p ON p.trace_profile_id = w.trace_profile_id
WHERE p.profile = 'default'
