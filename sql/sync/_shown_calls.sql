-- One row: a call with a cuda_sync row that shows the awaited work of the call or of a stream, in a profile.
-- How: exclude Event Sync rows whose event is neither stated nor inferred.
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
