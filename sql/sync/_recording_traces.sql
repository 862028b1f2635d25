-- One row: a trace, as a profile sees it, that records waits for GPU work (cuda_sync rows).
-- How: a separate table, because its readers need nothing else from _loaded_events.
SELECT DISTINCT
    trace_profile_id  -- The trace as a profile sees it.
FROM _loaded_events
WHERE sync_kind IS NOT NULL
