-- One row: an event with a duration that a profile takes part in, with its side, thread, stream and call roles.
-- How: sides by category (default) or by the stream argument (HTA 2.3); HTA then drops the last profiler step and what it launched (2.5).
WITH sided AS (
    SELECT
        p.profile, p.drop_last_step, e.trace_id, e.event_id, e.cat, e.name, e.pid, e.tid, e.ts_ns, e.dur_ns, e.end_ns,
        e.correlation, e.wait_on_stream, e.wait_on_cuda_event_record_corr_id,
        CASE
            WHEN NOT p.side_by_stream_argument THEN coalesce(s.side, 'cpu')
            WHEN coalesce(e.stream, -1) <> -1 THEN CASE WHEN e.cat = 'cuda_sync' THEN 'sync' ELSE 'gpu' END
            ELSE 'cpu'
        END AS side,
        coalesce(s.is_operator AND s.side = 'cpu', FALSE) AS is_operator,
        e.cat = 'cuda_sync' AS is_sync,
        coalesce(e.device, TRY_CAST(e.pid AS BIGINT), 0) AS device,
        e.stream,
        p.stream_by_device,
        p.side_by_stream_argument AND coalesce(e.stream, -1) >= 0 AND coalesce(e.correlation, -1) >= 0
        OR e.name IN ('Event Sync', 'Context Sync') AS is_correlated_gpu
    FROM events AS e
    JOIN _profiles AS p ON p.trace_id = e.trace_id
    LEFT JOIN category_sides AS s ON s.cat = e.cat
    WHERE
        e.dur_ns IS NOT NULL AND e.ts_ns IS NOT NULL AND e.cat IS NOT NULL
        AND (coalesce(s.side, 'cpu') <> 'none' OR p.side_by_stream_argument AND e.cat <> 'Trace')
),
steps AS (
    SELECT trace_id, profile, max(ts_ns) AS last_step_ns
    FROM sided
    WHERE drop_last_step AND NOT is_correlated_gpu AND regexp_matches(name, '^ProfilerStep#[0-9]+')
    GROUP BY trace_id, profile
    HAVING count(DISTINCT name) >= 2
),
dropped AS (
    SELECT l.trace_id, l.profile, l.gpu_event_id
    FROM steps AS st
    JOIN _links AS l ON l.trace_id = st.trace_id AND l.profile = st.profile
    JOIN sided AS c ON c.trace_id = l.trace_id AND c.profile = l.profile AND c.event_id = l.launch_event_id
    WHERE c.ts_ns >= st.last_step_ns
),
roles AS (
    SELECT
        profile, name,
        bool_or(role = 'lock') AS is_lock, bool_or(role = 'blocking') AS is_blocking,
        bool_or(role = 'record') AS is_record, bool_or(role = 'wait') AS is_wait, bool_or(role = 'launch') AS is_launch
    FROM call_roles
    GROUP BY profile, name
)
SELECT
    e.trace_id,  -- The trace.
    e.profile,  -- hta or default.
    e.event_id,  -- Position in traceEvents.
    e.cat,  -- Canonical category.
    e.name,  -- Name.
    t.thread_id,  -- Number of its thread in threads.
    e.tid,  -- Thread id as text.
    e.ts_ns,  -- Start, ns.
    e.dur_ns,  -- Duration, ns.
    e.end_ns,  -- End, ns.
    e.side,  -- cpu, gpu, sync or gpu_annotation.
    e.is_operator,  -- A CPU event that is a node of the graph.
    e.is_sync,  -- A row of category cuda_sync.
    e.device,  -- Device of GPU work.
    CASE WHEN e.stream_by_device THEN s.stream_id ELSE e.stream END AS stream_key,  -- What orders GPU work: the stream as the profile sees it.
    e.correlation,  -- Correlation id.
    e.wait_on_stream,  -- Stream whose event is waited for.
    e.wait_on_cuda_event_record_corr_id,  -- Correlation id of the record call waited for.
    st.last_step_ns IS NOT NULL AND e.is_correlated_gpu AS sorts_first,  -- HTA's frame has GPU rows first once it dropped the last step.
    coalesce(r.is_lock, FALSE) AS is_lock,  -- Takes the runtime lock.
    coalesce(r.is_blocking, FALSE) AS is_blocking,  -- Waits for the GPU.
    coalesce(r.is_record, FALSE) AS is_record,  -- Records an event.
    coalesce(r.is_wait, FALSE) AS is_wait,  -- Makes a stream wait for an event.
    coalesce(r.is_launch, FALSE) AS is_launch  -- Starts GPU work, by name.
FROM sided AS e
JOIN threads AS t ON t.trace_id = e.trace_id AND t.pid = e.pid AND t.tid = e.tid
LEFT JOIN streams AS s ON s.trace_id = e.trace_id AND s.device = e.device AND s.stream = e.stream
LEFT JOIN roles AS r ON r.profile = e.profile AND r.name = e.name AND e.is_operator
LEFT JOIN steps AS st ON st.trace_id = e.trace_id AND st.profile = e.profile
LEFT JOIN dropped AS d ON d.trace_id = e.trace_id AND d.profile = e.profile AND d.gpu_event_id = e.event_id
WHERE
    d.gpu_event_id IS NULL
    AND (st.last_step_ns IS NULL OR e.is_correlated_gpu OR e.ts_ns < st.last_step_ns)
