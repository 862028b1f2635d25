-- One row: the name of a process or a thread of a Perfetto trace.
WITH processes AS (
    SELECT pid, min(process) AS name FROM _perfetto_tracks WHERE pid IS NOT NULL GROUP BY pid
),
named AS (
    SELECT
        'process_name' AS name, pid, CAST(NULL AS VARCHAR) AS tid, CAST(json_object('name', name) AS VARCHAR) AS args
    FROM processes
    WHERE name IS NOT NULL
    UNION ALL
    SELECT 'thread_name', pid, tid, CAST(json_object('name', thread) AS VARCHAR)
    FROM _perfetto_tracks
    WHERE is_thread AND thread IS NOT NULL
)
SELECT
    row_number() OVER (ORDER BY name, pid, tid, args) - 1 AS event_id,  -- Number of the event: before all others.
    name,  -- process_name or thread_name.
    pid,  -- Process id as text.
    tid,  -- Thread id as text.
    args  -- The name, as JSON.
FROM named
