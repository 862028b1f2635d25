-- One row: a trace, as a profile sees it, that records waits for GPU work (cuda_sync rows).
-- How: a table of its own, because who asks for this needs no other row of _loaded_events.
SELECT DISTINCT
    trace_profile_id  -- The trace as a profile sees it.
FROM _loaded_events
WHERE sync_kind IS NOT NULL
