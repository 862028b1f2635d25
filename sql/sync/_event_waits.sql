-- One row: a wait for an event and GPU work that it held up, joined to the record of the event, in a profile.
-- How: where a cuda_sync row states record and stream, the record is joined to the last launch on its stream at or
-- before it (HTA 2.8.8; a window function over launches and records in time order). Otherwise: _inferred_wait_sources.
WITH waits AS (
    SELECT w.*, p.stream_by_device
    FROM _waits_for_events AS w
    JOIN _profiles AS p ON p.trace_profile_id = w.trace_profile_id
    WHERE w.evidence = 'record_and_stream'
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
)
SELECT
    w.trace_profile_id,  -- The trace as a profile sees it.
    w.wait_event_id,  -- The cuda_sync row; the call where it has none.
    w.sync_kind AS wait_kind,  -- Stream Wait Event or Event Sync.
    w.wait_call_event_id,  -- The CPU call that waits or makes the stream wait.
    w.end_ns AS wait_end_ns,  -- End of the cuda_sync row, ns.
    r.record_event_id,  -- The CPU call that recorded the event; NULL when it is not in the trace or unknown.
    s.source_kernel_id,  -- GPU work that must end first; NULL when nothing was launched before the record.
    t.waiting_kernel_id,  -- GPU work that waits; NULL for Event Sync (the CPU call waits) and when nothing followed.
    w.evidence,  -- See _waits_for_events; none: no call before the wait records an event.
    TRUE AS is_best  -- Of several pieces of work that the wait may have held up, the likeliest.
FROM waits AS w
LEFT JOIN records AS r ON r.trace_profile_id = w.trace_profile_id AND r.correlation = w.record_correlation
LEFT JOIN wait_sources AS s
    ON s.trace_profile_id = w.trace_profile_id AND s.wait_event_id = w.wait_event_id AND s.choice = 1
LEFT JOIN _event_wait_targets AS t ON t.trace_profile_id = w.trace_profile_id AND t.wait_event_id = w.wait_event_id
UNION ALL
SELECT
    w.trace_profile_id, w.wait_event_id, w.sync_kind, w.wait_call_event_id, w.end_ns,
    coalesce(i.record_event_id, w.record_event_id), i.source_kernel_id,
    coalesce(i.waiting_kernel_id, t.waiting_kernel_id),
    CASE WHEN w.evidence = 'calls' AND i.record_event_id IS NULL THEN 'none' ELSE w.evidence END,
    row_number() OVER (
        PARTITION BY w.trace_profile_id, w.wait_event_id ORDER BY i.tier, i.is_next DESC, i.waiting_kernel_id
    ) = 1
FROM _waits_for_events AS w
LEFT JOIN _inferred_wait_sources AS i
    ON i.trace_profile_id = w.trace_profile_id AND i.wait_event_id = w.wait_event_id
LEFT JOIN _event_wait_targets AS t
    ON t.trace_profile_id = w.trace_profile_id AND t.wait_event_id = w.wait_event_id AND t.is_next
WHERE w.evidence <> 'record_and_stream'
