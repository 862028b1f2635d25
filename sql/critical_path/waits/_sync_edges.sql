-- One row: a synchronization edge, from the end of GPU work to the GPU work or CPU call that waited for it.
-- How: stream waits from _kernel_waits, event syncs from _event_waits. For stream and context syncs, the work on each
-- stream that began before the end of the sync and ended last (HTA 2.8.7: that began last). If another thread launched
-- it during the call, the work launched before the call that ended last. The work that a call waited for may run
-- outside the window (_gpu_history). Such a row is not an edge, but it explains the call's time.
WITH syncs AS (
    SELECT
        c.window_no, CASE WHEN p.whole_trace_history THEN -w.trace_profile_id ELSE w.window_no END AS scope_no,
        w.trace_profile_id, c.event_id, c.sync_kind, c.device, c.stream_key, c.start_ns + c.duration_ns AS end_ns,
        c.launch_event_id,
        n.start_ns AS call_ts_ns, n.start_ns + n.duration_ns AS call_end_ns, p.stream_by_device
    FROM _clip AS c
    JOIN _asked_windows AS w ON w.window_no = c.window_no
    JOIN _profiles AS p ON p.trace_profile_id = w.trace_profile_id
    JOIN _clip AS n ON n.window_no = c.window_no AND n.event_id = c.launch_event_id AND n.is_operator
    WHERE c.side = 'sync' AND c.sync_kind IN ('Stream Sync', 'Context Sync', 'Event Sync')
),
calls AS (
    SELECT DISTINCT window_no, scope_no, launch_event_id AS call_event_id, call_ts_ns, call_end_ns FROM syncs
),
event_syncs AS (
    SELECT
        s.scope_no, k.event_id AS src_event_id, k.end_ns AS src_ns, s.launch_event_id AS call_event_id,
        w.is_inferred
    FROM syncs AS s
    JOIN _event_waits AS w ON w.trace_profile_id = s.trace_profile_id AND w.wait_event_id = s.event_id
    JOIN _gpu_history AS k ON k.scope_no = s.scope_no AND k.event_id = w.source_kernel_id
    WHERE s.sync_kind = 'Event Sync'
),
stream_list AS (
    SELECT DISTINCT scope_no, device, stream_key FROM _gpu_history
),
synced_streams AS (
    SELECT DISTINCT
        s.scope_no, l.stream_key, s.event_id AS sync_event_id, s.end_ns, s.launch_event_id, s.call_ts_ns
    FROM syncs AS s
    JOIN stream_list AS l ON l.scope_no = s.scope_no
    WHERE
        s.sync_kind = 'Stream Sync' AND l.stream_key = s.stream_key
        OR s.sync_kind = 'Context Sync' AND (l.device = s.device OR NOT s.stream_by_device)
),
both_kinds AS (
    SELECT
        h.scope_no, h.stream_key, h.start_ns AS at_ns, h.event_id AS order_id, CAST(NULL AS BIGINT) AS call_event_id,
        CAST(NULL AS BIGINT) AS call_ts_ns, h.end_ns,
        NOT p.overlap_counts_once OR h.busy_until_ns IS NULL OR h.end_ns >= h.busy_until_ns AS is_last
    FROM _gpu_history AS h
    JOIN _profiles AS p ON p.trace_profile_id = h.trace_profile_id
    UNION ALL
    SELECT scope_no, stream_key, end_ns, sync_event_id, launch_event_id, call_ts_ns, NULL, FALSE FROM synced_streams
),
numbered AS (
    SELECT *, row_number() OVER (PARTITION BY scope_no, stream_key ORDER BY at_ns, order_id) AS ordinal FROM both_kinds
),
walk AS (
    SELECT
        *,
        max(CASE WHEN is_last THEN ordinal END) OVER (
            PARTITION BY scope_no, stream_key ORDER BY ordinal ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        ) AS last_ordinal
    FROM numbered
),
last_work AS (
    SELECT s.scope_no, s.stream_key, s.call_event_id, s.call_ts_ns, k.order_id AS event_id, k.end_ns
    FROM walk AS s
    JOIN walk AS k ON k.scope_no = s.scope_no AND k.stream_key = s.stream_key AND k.ordinal = s.last_ordinal
    WHERE s.call_event_id IS NOT NULL
),
-- The latest end of the work launched until each launch. Work without a launch counts as launched before all others.
launched AS (
    SELECT
        scope_no, stream_key, coalesce(launch_ts_ns, -9223372036854775807) AS at_ns,
        max(max(end_ns)) OVER (PARTITION BY scope_no, stream_key ORDER BY at_ns) AS end_ns
    FROM _gpu_history
    WHERE scope_no < 0
    GROUP BY scope_no, stream_key, at_ns
),
-- No call waits for work that was launched after the call began.
launched_until AS (
    SELECT w.*, l.end_ns AS launched_end_ns
    FROM last_work AS w
    ASOF LEFT JOIN launched AS l
        ON l.scope_no = w.scope_no AND l.stream_key = w.stream_key AND l.at_ns <= w.call_ts_ns
    WHERE w.scope_no < 0 AND coalesce(l.end_ns < w.end_ns, TRUE)
),
call_waits AS (
    SELECT scope_no, src_event_id, src_ns, call_event_id, is_inferred FROM event_syncs
    UNION
    SELECT w.scope_no, w.event_id, w.end_ns, w.call_event_id, FALSE
    FROM last_work AS w
    LEFT JOIN launched_until AS l
        ON l.scope_no = w.scope_no AND l.stream_key = w.stream_key AND l.call_event_id = w.call_event_id
            AND l.event_id = w.event_id
    WHERE l.call_event_id IS NULL
    UNION
    SELECT l.scope_no, k.event_id, k.end_ns, l.call_event_id, FALSE
    FROM launched_until AS l
    JOIN _gpu_history AS k
        ON k.scope_no = l.scope_no AND k.stream_key = l.stream_key AND k.end_ns = l.launched_end_ns
)
SELECT
    window_no,  -- The window.
    source_event_id AS src_event_id,  -- GPU work that had to end.
    source_end_ns AS src_ns,  -- End of that work, ns.
    event_id AS dst_event_id,  -- GPU work or CPU call that waited.
    TRUE AS dst_is_start,  -- TRUE: the start of GPU work; FALSE: the end of a CPU call.
    start_ns AS dst_ns,  -- Time of the destination, ns.
    FALSE AS explains_wait,  -- The call began while the work was still running, so it waited for this work.
    source_in_window AS src_in_window,  -- The GPU work belongs to the window; else this row is not an edge.
    FALSE AS is_inferred  -- The cuda_sync row does not state the awaited work: see _event_waits.
FROM _kernel_waits
WHERE NOT is_inferred
UNION ALL
SELECT
    c.window_no, w.src_event_id, w.src_ns, c.call_event_id, FALSE, c.call_end_ns, w.src_ns > c.call_ts_ns,
    k.event_id IS NOT NULL, w.is_inferred
FROM call_waits AS w
JOIN calls AS c ON c.scope_no = w.scope_no AND c.call_event_id = w.call_event_id
LEFT JOIN _clip AS k ON k.window_no = c.window_no AND k.event_id = w.src_event_id AND k.side = 'gpu'
