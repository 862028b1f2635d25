-- One row: a call of which a cuda_sync row shows what it waited for or made a stream wait for, in a profile.
-- How: an Event Sync whose event is neither stated nor inferred shows nothing.
SELECT DISTINCT
    l.trace_profile_id,  -- The trace as a profile sees it.
    l.launch_event_id AS call_event_id  -- The call.
FROM _links AS l
JOIN _loaded_events AS e ON e.trace_profile_id = l.trace_profile_id AND e.event_id = l.gpu_event_id
LEFT JOIN _event_waits AS w ON w.trace_profile_id = e.trace_profile_id AND w.wait_event_id = e.event_id
WHERE
    e.sync_kind IS NOT NULL
    AND (
        e.sync_kind <> 'Event Sync' OR w.source_kernel_id IS NOT NULL
        OR NOT w.is_inferred
    )
