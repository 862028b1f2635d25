-- One row: a synchronisation edge: from the end of GPU work to the GPU work or the CPU call that waited for it.
-- How: stream waits by _kernel_waits, event syncs by _event_waits; stream and context syncs by the last work on each stream before the sync's end (HTA 2.8.7).
WITH work AS (
    SELECT trace_id, window_id, profile, event_id, device, stream_key, ts_ns, end_ns FROM _clip WHERE side = 'gpu'
),
calls AS (
    SELECT trace_id, window_id, profile, event_id, end_ns FROM _clip WHERE side = 'cpu' AND is_operator
),
syncs AS (
    SELECT
        c.trace_id, c.window_id, c.profile, c.event_id, c.name, c.device, c.stream_key, c.end_ns, c.launch_event_id,
        n.end_ns AS call_end_ns, p.stream_by_device
    FROM _clip AS c
    JOIN _profiles AS p ON p.trace_id = c.trace_id AND p.profile = c.profile
    JOIN calls AS n ON n.trace_id = c.trace_id AND n.window_id = c.window_id AND n.event_id = c.launch_event_id
    WHERE c.side = 'sync' AND c.name IN ('Stream Sync', 'Context Sync', 'Event Sync')
),
event_syncs AS (
    SELECT s.trace_id, s.window_id, k.event_id AS src_event_id, k.end_ns AS src_ns, s.launch_event_id AS dst_event_id, FALSE AS dst_is_start, s.call_end_ns AS dst_ns
    FROM syncs AS s
    JOIN _event_waits AS w ON w.trace_id = s.trace_id AND w.profile = s.profile AND w.wait_event_id = s.event_id
    JOIN work AS k ON k.trace_id = s.trace_id AND k.window_id = s.window_id AND k.event_id = w.source_kernel_id
    WHERE s.name = 'Event Sync'
),
stream_list AS (
    SELECT DISTINCT trace_id, window_id, device, stream_key FROM work
),
synced_streams AS (
    SELECT s.trace_id, s.window_id, l.stream_key, s.event_id AS sync_event_id, s.end_ns, s.launch_event_id, s.call_end_ns
    FROM syncs AS s
    JOIN stream_list AS l
        ON l.trace_id = s.trace_id AND l.window_id = s.window_id
        AND (
            s.name = 'Stream Sync' AND l.stream_key = s.stream_key
            OR s.name = 'Context Sync' AND (l.device = s.device OR NOT s.stream_by_device)
        )
    GROUP BY s.trace_id, s.window_id, l.stream_key, s.event_id, s.end_ns, s.launch_event_id, s.call_end_ns
),
walk AS (
    SELECT
        *,
        max(CASE WHEN sync_event_id IS NULL THEN place END) OVER (
            PARTITION BY trace_id, window_id, stream_key ORDER BY place
            ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        ) AS last_place
    FROM (
        SELECT
            *,
            row_number() OVER (PARTITION BY trace_id, window_id, stream_key ORDER BY at_ns, order_id) AS place
        FROM (
            SELECT trace_id, window_id, stream_key, ts_ns AS at_ns, event_id AS order_id, event_id, end_ns, CAST(NULL AS BIGINT) AS sync_event_id, CAST(NULL AS BIGINT) AS call_event_id, CAST(NULL AS BIGINT) AS call_end_ns
            FROM work
            UNION ALL
            SELECT trace_id, window_id, stream_key, end_ns, sync_event_id, NULL, NULL, sync_event_id, launch_event_id, call_end_ns
            FROM synced_streams
        ) AS both_kinds
    ) AS placed
),
stream_syncs AS (
    SELECT s.trace_id, s.window_id, k.event_id AS src_event_id, k.end_ns AS src_ns, s.call_event_id AS dst_event_id, FALSE AS dst_is_start, s.call_end_ns AS dst_ns
    FROM walk AS s
    JOIN walk AS k ON k.trace_id = s.trace_id AND k.window_id = s.window_id AND k.stream_key = s.stream_key AND k.place = s.last_place
    WHERE s.sync_event_id IS NOT NULL
),
all_edges AS (
    SELECT trace_id, window_id, source_event_id AS src_event_id, source_end_ns AS src_ns, event_id AS dst_event_id, TRUE AS dst_is_start, ts_ns AS dst_ns
    FROM _kernel_waits
    UNION ALL
    SELECT trace_id, window_id, src_event_id, src_ns, dst_event_id, dst_is_start, dst_ns FROM event_syncs
    UNION ALL
    SELECT trace_id, window_id, src_event_id, src_ns, dst_event_id, dst_is_start, dst_ns FROM stream_syncs
)
SELECT
    trace_id,  -- The trace.
    window_id,  -- The window.
    src_event_id,  -- GPU work that had to end.
    min(src_ns) AS src_ns,  -- Its end, ns.
    dst_event_id,  -- What waited.
    dst_is_start,  -- TRUE: the start of GPU work; FALSE: the end of a CPU call.
    min(dst_ns) AS dst_ns  -- Time of the destination, ns.
FROM all_edges
GROUP BY trace_id, window_id, src_event_id, dst_event_id, dst_is_start
