-- One row: GPU work of a window and GPU work that it waited for on another stream or through an event.
-- How: the waits of _event_waits and _inferred_waits. In HTA, both ends must be in the window, and only the last wait
-- that HTA passes before the kernel counts (2.8.7).
WITH work AS (
    SELECT
        c.window_no, w.trace_profile_id, c.event_id, c.stream_key, c.start_ns, p.one_wait_per_kernel,
        CASE WHEN p.whole_trace_history THEN -w.trace_profile_id ELSE w.window_no END AS scope_no
    FROM _clip AS c
    JOIN _asked_windows AS w ON w.window_no = c.window_no
    JOIN _profiles AS p ON p.trace_profile_id = w.trace_profile_id
    WHERE c.side = 'gpu'
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
)
SELECT
    w.window_no,  -- The window.
    w.event_id,  -- GPU work that waits.
    w.start_ns,  -- Start of the waiting work, ns.
    w.source_event_id,  -- GPU work that must end first; NULL if it was launched before the trace.
    coalesce(w.source_end_ns, s.end_ns) AS source_end_ns,  -- End of the awaited work, ns.
    -- Both run on one stream, so the wait is legal and adds nothing.
    coalesce(s.stream_key = w.stream_key, FALSE) AS is_same_stream,
    i.event_id IS NOT NULL AS source_in_window,  -- The awaited work also belongs to the window.
    w.is_inferred  -- No cuda_sync row records the wait: inferred from calls and timing.
FROM waiting AS w
LEFT JOIN _gpu_history AS s ON s.scope_no = w.scope_no AND s.event_id = w.source_event_id
LEFT JOIN work AS i ON i.window_no = w.window_no AND i.event_id = w.source_event_id
WHERE s.event_id IS NOT NULL OR w.is_inferred
