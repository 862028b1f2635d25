-- One row: a trace, as a profile sees it, that states all waits of GPU work. It has cuda_sync rows, and each such row
-- for an event names the record and its stream, unless a cuda_event row does.
SELECT
    r.trace_profile_id  -- The trace as a profile sees it.
FROM _recording_traces AS r
LEFT JOIN _waits_for_events AS w
    ON w.trace_profile_id = r.trace_profile_id AND w.has_row AND w.evidence IN ('record', 'stream', 'calls')
WHERE w.wait_event_id IS NULL
