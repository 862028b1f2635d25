-- One row: a GPU-side wait for an event, joined to the event record that it waits for, in a profile.
-- How: a record is joined to the last launch on its stream at or before it; a stream wait, to the next launch of its
-- thread on its stream after it (HTA 2.8.8).
-- Both lookups are window functions over launches and records (or waits) in time order.
WITH waits AS (
    SELECT
        e.trace_profile_id, e.event_id AS wait_event_id, e.sync_kind, e.device, e.stream_key,
        e.start_ns + e.duration_ns AS end_ns,
        e.wait_on_stream, e.wait_on_cuda_event_record_corr_id AS record_correlation,
        c.event_id AS wait_call_event_id, c.thread_id, c.start_ns AS call_ts_ns, c.is_wait,
        p.stream_by_device
    FROM _loaded_events AS e
    JOIN _profiles AS p ON p.trace_profile_id = e.trace_profile_id
    JOIN _links AS l ON l.trace_profile_id = e.trace_profile_id AND l.gpu_event_id = e.event_id
    JOIN _loaded_events AS c ON c.trace_profile_id = l.trace_profile_id AND c.event_id = l.launch_event_id
    WHERE l.is_known AND e.sync_kind IN ('Stream Wait Event', 'Event Sync')
),
records AS (
    SELECT trace_profile_id, correlation, max(event_id) AS record_event_id, max(start_ns) AS start_ns
    FROM _loaded_events
    WHERE is_record AND correlation IS NOT NULL
    GROUP BY trace_profile_id, correlation
),
launched_on AS (
    SELECT DISTINCT trace_profile_id, device, stream_key FROM _launches
),
-- An event may be waited for on a device other than the one it was recorded on: every device with that stream is a
-- candidate, first that of the wait. Where that is the stream that waits, which would be no wait, the one launched on
-- last.
waited_on AS (
    SELECT
        w.trace_profile_id, w.wait_event_id, w.record_correlation, w.device AS wait_device,
        w.stream_key AS wait_stream_key, l.device, l.stream_key
    FROM waits AS w
    JOIN launched_on AS l
        ON l.trace_profile_id = w.trace_profile_id AND l.device = w.device AND l.stream_key = w.wait_on_stream
    WHERE NOT w.stream_by_device
    UNION ALL
    SELECT
        w.trace_profile_id, w.wait_event_id, w.record_correlation, w.device, w.stream_key, l.device, l.stream_key
    FROM waits AS w
    JOIN _profiles AS p ON p.trace_profile_id = w.trace_profile_id
    JOIN streams AS s ON s.trace_id = p.trace_id AND s.stream = w.wait_on_stream
    JOIN launched_on AS l ON l.trace_profile_id = w.trace_profile_id AND l.stream_key = s.stream_id
    WHERE w.stream_by_device
),
recorded_on AS (
    SELECT DISTINCT
        w.trace_profile_id, r.record_event_id, r.start_ns, w.device, w.stream_key, w.wait_event_id,
        w.wait_stream_key, w.device = w.wait_device AS same_device
    FROM waited_on AS w
    JOIN records AS r
        ON r.trace_profile_id = w.trace_profile_id AND r.correlation = w.record_correlation
),
record_places AS (
    SELECT DISTINCT trace_profile_id, record_event_id, start_ns, device, stream_key FROM recorded_on
),
before_record AS (
    SELECT
        *,
        max(CASE WHEN record_event_id IS NULL THEN ordinal END) OVER (
            PARTITION BY trace_profile_id, device, stream_key ORDER BY ordinal
            ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        ) AS launch_ordinal
    FROM (
        SELECT
            *,
            row_number() OVER (
                PARTITION BY trace_profile_id, device, stream_key
                ORDER BY start_ns, CASE WHEN record_event_id IS NULL THEN 0 ELSE 1 END, order_id
            ) AS ordinal
        FROM (
            SELECT
                trace_profile_id, device, stream_key, start_ns, launch_event_id AS order_id, last_gpu_event_id,
                CAST(NULL AS BIGINT) AS record_event_id
            FROM _launches AS l
            WHERE
                EXISTS (
                    SELECT 1 FROM record_places AS r WHERE r.trace_profile_id = l.trace_profile_id
                        AND r.device = l.device
                        AND r.stream_key = l.stream_key
                )
            UNION ALL
            SELECT
                trace_profile_id, device, stream_key, start_ns, record_event_id, NULL, record_event_id
            FROM record_places
        ) AS both_kinds
    ) AS placed
),
sources AS (
    SELECT
        r.trace_profile_id, r.record_event_id, r.device, r.stream_key, l.last_gpu_event_id AS source_kernel_id,
        l.start_ns AS launched_ns
    FROM before_record AS r
    JOIN before_record AS l
        ON l.trace_profile_id = r.trace_profile_id AND l.device = r.device
            AND l.stream_key = r.stream_key AND l.ordinal = r.launch_ordinal
    WHERE r.record_event_id IS NOT NULL
),
wait_sources AS (
    SELECT
        o.trace_profile_id, o.wait_event_id, o.record_event_id, s.source_kernel_id,
        row_number() OVER (
            PARTITION BY o.trace_profile_id, o.wait_event_id
            ORDER BY
                CASE WHEN o.same_device AND o.stream_key <> o.wait_stream_key THEN 0 ELSE 1 END, s.launched_ns DESC,
                CASE WHEN o.same_device THEN 0 ELSE 1 END, s.source_kernel_id
        ) AS choice
    FROM recorded_on AS o
    JOIN sources AS s
        ON s.trace_profile_id = o.trace_profile_id AND s.record_event_id = o.record_event_id
            AND s.device = o.device AND s.stream_key = o.stream_key
),
after_wait AS (
    SELECT
        *,
        min(CASE WHEN wait_event_id IS NULL THEN ordinal END) OVER (
            PARTITION BY trace_profile_id, thread_id, stream_key ORDER BY ordinal
            ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING
        ) AS launch_ordinal
    FROM (
        SELECT
            *,
            row_number() OVER (
                PARTITION BY trace_profile_id, thread_id, stream_key
                ORDER BY start_ns, CASE WHEN wait_event_id IS NULL THEN 0 ELSE 1 END, order_id
            ) AS ordinal
        FROM (
            SELECT
                trace_profile_id, thread_id, stream_key, start_ns, launch_event_id AS order_id, first_gpu_event_id,
                CAST(NULL AS BIGINT) AS wait_event_id
            FROM _launches AS l
            WHERE
                EXISTS (
                    SELECT 1 FROM waits AS w WHERE w.trace_profile_id = l.trace_profile_id
                        AND w.thread_id = l.thread_id
                        AND w.stream_key = l.stream_key
                )
            UNION ALL
            SELECT trace_profile_id, thread_id, stream_key, call_ts_ns, wait_call_event_id, NULL, wait_event_id
            FROM waits
            WHERE sync_kind = 'Stream Wait Event' AND is_wait
        ) AS both_kinds
    ) AS placed
),
targets AS (
    SELECT w.trace_profile_id, w.wait_event_id, l.first_gpu_event_id AS waiting_kernel_id
    FROM after_wait AS w
    JOIN after_wait AS l
        ON l.trace_profile_id = w.trace_profile_id AND l.thread_id = w.thread_id
            AND l.stream_key = w.stream_key AND l.ordinal = w.launch_ordinal
    WHERE w.wait_event_id IS NOT NULL
)
SELECT
    w.trace_profile_id,  -- The trace as a profile sees it.
    w.wait_event_id,  -- The cuda_sync row.
    w.sync_kind AS wait_kind,  -- Stream Wait Event or Event Sync.
    w.wait_call_event_id,  -- The CPU call that waits or makes the stream wait.
    w.end_ns AS wait_end_ns,  -- End of the cuda_sync row, ns.
    w.record_correlation,  -- Correlation id of the record call.
    r.record_event_id,  -- The CPU call that recorded the event; NULL when it is not in the trace.
    s.source_kernel_id,  -- GPU work that must end first; NULL when nothing was launched before the record.
    t.waiting_kernel_id  -- GPU work that waits; NULL for Event Sync (the CPU call waits) and when nothing followed.
FROM waits AS w
LEFT JOIN records AS r ON r.trace_profile_id = w.trace_profile_id AND r.correlation = w.record_correlation
LEFT JOIN wait_sources AS s
    ON s.trace_profile_id = w.trace_profile_id AND s.wait_event_id = w.wait_event_id AND s.choice = 1
LEFT JOIN targets AS t ON t.trace_profile_id = w.trace_profile_id AND t.wait_event_id = w.wait_event_id
