-- One row: a GPU activity and an operator, module or layer by which a scenario can select it.
-- How: kernel_owners, and for modules also the modules around the innermost module (_work_modules).
-- check: unique(trace_id, kind, name, event_id)
SELECT
    trace_id,  -- The trace.
    'op' AS kind,  -- op, module or layer.
    op AS name,  -- Name of the operator or module; number of the layer.
    event_id  -- The GPU work's position in traceEvents.
FROM kernel_owners
WHERE op IS NOT NULL
UNION ALL
SELECT trace_id, 'layer', CAST(layer AS VARCHAR), event_id FROM kernel_owners WHERE layer IS NOT NULL
UNION ALL
SELECT trace_id, 'module', name, event_id
FROM (
    SELECT trace_id, module AS name, event_id FROM kernel_owners WHERE module IS NOT NULL
    UNION
    SELECT trace_id, name, event_id FROM _work_modules
) AS modules
