-- One row: a wait of a stream or a call for an event, with the facts that the trace states: a cuda_sync row or, in
-- profiles that infer waits, a stream wait call without such a row.
-- How: a row states the record and its stream, the record alone (Cuspy), or nothing (-1: Kineto with CUDA 12.9 and
-- later). A record with a cuda_event row is found by its call or by the number of the event; by the number only if its
-- thread made no record without such a row before the wait. A row that states a record whose call is not in the trace
-- states at most the stream.
-- Of two calls with one correlation id, the record is the later one.
WITH by_correlation AS (
    SELECT trace_profile_id, correlation, max(record_no) AS record_no
    FROM _event_records
    WHERE correlation > 0
    GROUP BY trace_profile_id, correlation
),
syncs AS (
    SELECT
        e.trace_profile_id, e.event_id AS wait_event_id, e.sync_kind, e.device, e.stream_key,
        e.start_ns + e.duration_ns AS end_ns, e.wait_on_stream,
        e.wait_on_cuda_event_record_corr_id AS record_correlation, c.event_id AS wait_call_event_id, c.thread_id,
        c.start_ns AS call_ts_ns, c.start_ns + c.duration_ns AS call_end_ns, c.is_wait,
        p.infer_waits AND (r.record_no IS NULL OR coalesce(e.wait_on_stream, -1) < 0) AS lacks_source,
        p.infer_waits AND r.record_no IS NULL AS lacks_record,
        p.infer_waits AND r.record_no IS NULL AND coalesce(e.wait_on_cuda_event_record_corr_id, -1) > 0
            AS record_is_missing,
        r.record_no, p.infer_waits, p.trace_id
    FROM _loaded_events AS e
    JOIN _profiles AS p ON p.trace_profile_id = e.trace_profile_id
    JOIN _links AS l ON l.trace_profile_id = e.trace_profile_id AND l.gpu_event_id = e.event_id
    JOIN _loaded_events AS c ON c.trace_profile_id = l.trace_profile_id AND c.event_id = l.launch_event_id
    LEFT JOIN by_correlation AS r
        ON r.trace_profile_id = e.trace_profile_id AND r.correlation = e.wait_on_cuda_event_record_corr_id
    WHERE l.is_known AND e.sync_kind IN ('Stream Wait Event', 'Event Sync') AND NOT c.is_captured
),
calls AS (
    SELECT
        c.trace_profile_id, c.event_id, c.thread_id, c.start_ns, c.start_ns + c.duration_ns AS end_ns, p.trace_id
    FROM _loaded_events AS c
    JOIN _profiles AS p ON p.trace_profile_id = c.trace_profile_id AND p.infer_waits
    LEFT JOIN syncs AS s ON s.trace_profile_id = c.trace_profile_id AND s.wait_call_event_id = c.event_id
    WHERE c.is_wait AND s.wait_event_id IS NULL
),
waits AS (
    SELECT
        trace_profile_id, wait_event_id, sync_kind, device, stream_key, end_ns, wait_on_stream, record_correlation,
        wait_call_event_id, thread_id, call_ts_ns, call_end_ns, is_wait, lacks_source, lacks_record, record_is_missing,
        record_no, TRUE AS has_row, infer_waits, trace_id
    FROM syncs
    UNION ALL
    SELECT
        trace_profile_id, event_id, 'Stream Wait Event', NULL, NULL, end_ns, NULL, NULL, event_id, thread_id, start_ns,
        end_ns, TRUE, TRUE, TRUE, FALSE, NULL, FALSE, TRUE, trace_id
    FROM calls
),
numbers AS (
    SELECT w.trace_profile_id, w.wait_event_id, e.wait_on_cuda_event_id AS event_number
    FROM waits AS w
    JOIN events AS e ON e.trace_id = w.trace_id AND e.event_id = w.wait_event_id
    WHERE w.has_row AND w.infer_waits AND e.wait_on_cuda_event_id >= 0
),
-- The last record of an event before a wait for it.
by_number AS (
    SELECT
        trace_profile_id, wait_event_id, at_ns,
        max(record_no) OVER (
            PARTITION BY trace_profile_id, device, event_number ORDER BY at_ns, turn
            ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        ) AS record_no
    FROM (
        SELECT
            trace_profile_id, device, event_number, start_ns AS at_ns, 0 AS turn, record_no,
            CAST(NULL AS BIGINT) AS wait_event_id
        FROM _event_records
        WHERE event_number IS NOT NULL
        UNION ALL
        SELECT w.trace_profile_id, w.device, n.event_number, w.call_ts_ns, 1, NULL, w.wait_event_id
        FROM waits AS w
        JOIN numbers AS n ON n.trace_profile_id = w.trace_profile_id AND n.wait_event_id = w.wait_event_id
        WHERE w.lacks_record AND NOT w.record_is_missing
    ) AS both_kinds
),
-- A later record without a row may have been of the same event.
latest_by_number AS (
    SELECT b.trace_profile_id, b.wait_event_id, b.record_no
    FROM by_number AS b
    JOIN _event_records AS r ON r.trace_profile_id = b.trace_profile_id AND r.record_no = b.record_no
    WHERE coalesce(r.next_unshown_ns > b.at_ns, TRUE)
)
SELECT
    w.trace_profile_id,  -- The trace as a profile sees it.
    w.wait_event_id,  -- The cuda_sync row, or the call if it has no row.
    w.sync_kind,  -- Stream Wait Event or Event Sync.
    w.device,  -- Device of the waiting stream; NULL if only the call is known.
    w.stream_key,  -- The waiting stream; NULL if only the call is known.
    w.end_ns,  -- End of the row, ns.
    w.wait_on_stream,  -- Number of the awaited stream, as stated.
    w.record_correlation,  -- Correlation id of the record, as stated.
    w.wait_call_event_id,  -- The CPU call that waits or makes the stream wait.
    coalesce(o.order_thread_id, w.thread_id) AS order_thread_id,  -- Thread whose order of calls includes the call.
    w.call_ts_ns,  -- Start of the call, ns.
    w.call_end_ns,  -- End of the call, ns.
    w.is_wait,  -- The call makes a stream wait.
    w.has_row,  -- FALSE: only the call is known.
    n.event_number,  -- CUPTI's number of the event; NULL if it is not stated.
    r.record_event_id,  -- The stated or shown record; NULL if its call is not in the trace.
    w.record_is_missing,  -- The record is stated, but its call is not in the trace (only in profiles that infer waits).
    -- The record's stream is known, even if the trace has no work of it.
    coalesce(r.is_shown, FALSE) OR coalesce(w.wait_on_stream, -1) >= 0 AS has_source_stream,
    -- That stream; NULL if on the wait's device no stream of that number has work, or only the waiting stream.
    CASE WHEN r.is_shown THEN r.stream_key ELSE t.stream_id END AS source_stream_key,
    coalesce(r.is_shown, FALSE) AS is_shown,  -- A cuda_event row shows that stream and its device.
    -- Known facts: record_and_stream, cuda_event (a cuda_event row has the facts missing from the row), record, stream,
    -- or calls (only the order of calls).
    CASE
        WHEN NOT w.lacks_source THEN 'record_and_stream'
        WHEN r.is_shown THEN 'cuda_event'
        WHEN NOT w.lacks_record THEN 'record'
        WHEN w.wait_on_stream >= 0 THEN 'stream'
        ELSE 'calls'
    END AS evidence
FROM waits AS w
LEFT JOIN _thread_roles AS o ON o.trace_profile_id = w.trace_profile_id AND o.thread_id = w.thread_id
LEFT JOIN numbers AS n ON n.trace_profile_id = w.trace_profile_id AND n.wait_event_id = w.wait_event_id
LEFT JOIN latest_by_number AS b ON b.trace_profile_id = w.trace_profile_id AND b.wait_event_id = w.wait_event_id
-- The awaited stream is assumed to be on the wait's device if work ran there on another stream of that number, because
-- no row states the device.
LEFT JOIN streams AS t
    ON t.trace_id = w.trace_id AND t.device = w.device AND t.stream = w.wait_on_stream
        AND t.stream_id IS DISTINCT FROM w.stream_key AND t.n_kernels > 0
LEFT JOIN _event_records AS r
    ON r.trace_profile_id = w.trace_profile_id AND r.record_no = coalesce(w.record_no, b.record_no)
