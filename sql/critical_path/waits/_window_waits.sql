-- One row: GPU work or a call of a window, and GPU work that it waited for.
-- How: the waits of _event_waits and _inferred_waits that belong to the window, and waits of calls for a stream or a
-- device.
-- GPU work: in HTA, both ends must be in the window, and only the last wait that HTA passes before the kernel counts
-- (2.8.7).
-- Calls: event syncs from _event_waits. For stream and context syncs, the work on each stream that began before the end
-- of the sync and ended last (HTA 2.8.7: that began last). If another thread launched it during the call, the work
-- launched before the call that ended last.
-- The awaited work may run outside the window (_gpu_history). Such a row is not an edge, but it explains the time of
-- the waiting work or call. An inferred wait explains the time until the awaited work ended. The remaining time (a gap
-- before GPU work, a call's self time) keeps its weight.
WITH windows AS (
    SELECT
        w.window_no, w.trace_profile_id, p.one_wait_per_kernel, p.stream_by_device, p.overlap_counts_once,
        CASE WHEN p.whole_trace_history THEN -w.trace_profile_id ELSE w.window_no END AS scope_no
    FROM _asked_windows AS w
    JOIN _profiles AS p ON p.trace_profile_id = w.trace_profile_id
),
work AS (
    SELECT
        c.window_no, w.trace_profile_id, w.scope_no, c.event_id, c.stream_key, c.start_ns, w.one_wait_per_kernel
    FROM _clip AS c
    JOIN windows AS w ON w.window_no = c.window_no
    WHERE c.side = 'gpu'
),
-- Materialized: DuckDB may otherwise join each wait with each window of its trace first.
calls AS MATERIALIZED (
    SELECT
        c.window_no, w.trace_profile_id, c.event_id, c.start_ns, c.start_ns + c.duration_ns AS end_ns
    FROM _clip AS c
    JOIN windows AS w ON w.window_no = c.window_no
    WHERE c.is_operator
),
known AS (
    SELECT
        k.window_no, k.scope_no, k.event_id, k.stream_key, k.start_ns, k.one_wait_per_kernel,
        w.source_kernel_id AS source_event_id, w.is_inferred,
        row_number() OVER (
            PARTITION BY k.window_no, k.event_id ORDER BY w.wait_end_ns DESC, w.wait_event_id DESC
        ) AS recency
    FROM _event_waits AS w
    JOIN work AS k ON k.trace_profile_id = w.trace_profile_id AND k.event_id = w.waiting_kernel_id
    WHERE
        w.source_kernel_id IS NOT NULL
        -- HTA handles a wait when it passes the wait's end, so a wait that ends after the kernel's start comes too
        -- late.
        AND (
            NOT k.one_wait_per_kernel
            OR w.wait_end_ns < k.start_ns OR w.wait_end_ns = k.start_ns AND w.wait_event_id < k.event_id
        )
),
waiting AS (
    SELECT DISTINCT
        window_no, scope_no, event_id, stream_key, start_ns, source_event_id, CAST(NULL AS BIGINT) AS source_end_ns,
        is_inferred
    FROM known
    WHERE (recency = 1 OR NOT one_wait_per_kernel) AND source_event_id <> event_id
    UNION ALL
    SELECT k.window_no, k.scope_no, k.event_id, k.stream_key, k.start_ns, i.source_event_id, i.source_end_ns, TRUE
    FROM _inferred_waits AS i
    JOIN work AS k ON k.trace_profile_id = i.trace_profile_id AND k.event_id = i.event_id
    WHERE NOT i.is_call
),
syncs AS (
    SELECT
        c.window_no, w.scope_no, w.trace_profile_id, c.event_id, c.sync_kind, c.device, c.stream_key,
        c.start_ns + c.duration_ns AS end_ns, w.stream_by_device, n.event_id AS call_event_id,
        n.start_ns AS call_ts_ns, n.end_ns AS call_end_ns
    FROM _clip AS c
    JOIN windows AS w ON w.window_no = c.window_no
    JOIN calls AS n ON n.window_no = c.window_no AND n.event_id = c.launch_event_id
    WHERE c.side = 'sync' AND c.sync_kind IN ('Stream Sync', 'Context Sync', 'Event Sync')
),
syncing_calls AS (
    SELECT DISTINCT window_no, scope_no, call_event_id, call_ts_ns, call_end_ns FROM syncs
),
event_syncs AS (
    SELECT s.scope_no, k.event_id AS source_event_id, k.end_ns AS source_end_ns, s.call_event_id, w.is_inferred
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
        s.scope_no, l.stream_key, s.event_id AS sync_event_id, s.end_ns, s.call_event_id, s.call_ts_ns
    FROM syncs AS s
    JOIN stream_list AS l ON l.scope_no = s.scope_no
    WHERE
        s.sync_kind = 'Stream Sync' AND l.stream_key = s.stream_key
        OR s.sync_kind = 'Context Sync' AND (l.device = s.device OR NOT s.stream_by_device)
),
-- Only the work on these streams, so that a trace without such rows costs nothing.
synced_work AS (
    SELECT h.*
    FROM _gpu_history AS h
    SEMI JOIN synced_streams AS s ON s.scope_no = h.scope_no AND s.stream_key = h.stream_key
),
both_kinds AS (
    SELECT
        h.scope_no, h.stream_key, h.start_ns AS at_ns, h.event_id AS order_id, CAST(NULL AS BIGINT) AS call_event_id,
        CAST(NULL AS BIGINT) AS call_ts_ns, h.end_ns,
        NOT p.overlap_counts_once OR h.busy_until_ns IS NULL OR h.end_ns >= h.busy_until_ns AS is_last
    FROM synced_work AS h
    JOIN _profiles AS p ON p.trace_profile_id = h.trace_profile_id
    UNION ALL
    SELECT scope_no, stream_key, end_ns, sync_event_id, call_event_id, call_ts_ns, NULL, FALSE FROM synced_streams
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
    FROM synced_work
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
recorded AS (
    SELECT scope_no, source_event_id, source_end_ns, call_event_id, is_inferred FROM event_syncs
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
    JOIN synced_work AS k
        ON k.scope_no = l.scope_no AND k.stream_key = l.stream_key AND k.end_ns = l.launched_end_ns
)
SELECT
    w.window_no,  -- The window.
    w.event_id,  -- GPU work or a call that waited.
    FALSE AS is_call,  -- TRUE: a call waited until its end; FALSE: GPU work waited before its start.
    w.start_ns AS at_ns,  -- Start of the GPU work, or end of the call, ns.
    w.source_event_id,  -- GPU work that had to end first; NULL if it was launched before the trace.
    coalesce(w.source_end_ns, s.end_ns) AS source_end_ns,  -- End of the awaited work, ns.
    -- The awaited work belongs to the window; else this row is not an edge.
    i.event_id IS NOT NULL AS source_in_window,
    -- Both run on one stream, so the wait is allowed but redundant.
    coalesce(s.stream_key = w.stream_key, FALSE) AS is_same_stream,
    -- The call began while the work was still running, so it waited for this work; FALSE for GPU work.
    FALSE AS explains_wait,
    NOT w.is_inferred AS is_recorded,  -- A cuda_sync row records the wait; for GPU work, also the awaited work.
    w.is_inferred  -- No cuda_sync row states the awaited work: inferred from calls and timing.
FROM waiting AS w
LEFT JOIN _gpu_history AS s ON s.scope_no = w.scope_no AND s.event_id = w.source_event_id
LEFT JOIN work AS i ON i.window_no = w.window_no AND i.event_id = w.source_event_id
WHERE s.event_id IS NOT NULL OR w.is_inferred
UNION ALL
SELECT
    c.window_no, c.call_event_id, TRUE, c.call_end_ns, w.source_event_id, w.source_end_ns, k.event_id IS NOT NULL,
    FALSE, w.source_end_ns > c.call_ts_ns, TRUE, w.is_inferred
FROM recorded AS w
JOIN syncing_calls AS c ON c.scope_no = w.scope_no AND c.call_event_id = w.call_event_id
LEFT JOIN work AS k ON k.window_no = c.window_no AND k.event_id = w.source_event_id
UNION ALL
SELECT
    c.window_no, c.event_id, TRUE, c.end_ns, i.source_event_id, i.source_end_ns, s.event_id IS NOT NULL, FALSE, TRUE,
    FALSE, TRUE
FROM _inferred_waits AS i
JOIN calls AS c ON c.trace_profile_id = i.trace_profile_id AND c.event_id = i.event_id
LEFT JOIN work AS s ON s.window_no = c.window_no AND s.event_id = i.source_event_id
-- By the order of calls alone, a wait is only likely: call_waits in _call_claims decides.
WHERE i.is_call AND i.basis <> 'call_order'
