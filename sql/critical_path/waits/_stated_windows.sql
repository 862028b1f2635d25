-- model: _unstated_waits
-- One row: a window of a trace that records waits (cuda_sync rows), with the number of its waits whose source no row
-- states.
-- How: waits for events whose cuda_sync row does not state the record or the stream, and waits without a row that
-- delayed work. Only in profiles that infer waits.
-- Materialized, as in _window_waits: DuckDB may otherwise join each wait with each window of its trace first.
WITH calls AS MATERIALIZED (
    SELECT c.window_no, w.trace_profile_id, c.event_id
    FROM _clip AS c
    JOIN _asked_windows AS w ON w.window_no = c.window_no AND w.records_waits
    JOIN _profiles AS p ON p.trace_profile_id = w.trace_profile_id AND p.infer_waits
    WHERE c.side = 'cpu'
)
SELECT
    c.window_no,  -- The window.
    count(*) AS n_waits,  -- Number of these waits.
    -- Number of these waits whose source is inferred.
    count(*) FILTER (WHERE e.source_kernel_id IS NOT NULL) AS n_inferred,
    -- Number of these waits whose row states the record.
    count(*) FILTER (WHERE e.evidence = 'record') AS n_with_record
FROM _event_waits AS e
JOIN calls AS c ON c.trace_profile_id = e.trace_profile_id AND c.event_id = e.wait_call_event_id
WHERE
    e.is_best AND e.is_inferred
    AND (e.source_kernel_id IS NOT NULL OR e.wait_event_id <> e.wait_call_event_id)
GROUP BY c.window_no;

-- model: _stated_windows
-- One row: a window for which the trace states all waits of GPU work. The trace has cuda_sync rows, and every wait of
-- the window has a source (_unstated_waits). A window without GPU work also has a row.
-- How: these are the windows without the caveats no_sync_events and unstated_waits. Stored windows and saved paths read
-- the same information from those caveats.
WITH working AS (
    SELECT DISTINCT window_no FROM _kernel_nodes
)
SELECT
    w.window_no  -- The window.
FROM _asked_windows AS w
LEFT JOIN working AS k ON k.window_no = w.window_no
LEFT JOIN _unstated_waits AS u ON u.window_no = w.window_no
WHERE u.window_no IS NULL AND (w.records_waits OR k.window_no IS NULL);
