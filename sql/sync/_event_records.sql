-- One row: a call that records an event, in a profile that infers waits, with its number among the records of its
-- thread.
-- How: CUPTI writes a row for each record (category cuda_event; kineto #1552) with the stream, the event and the
-- correlation id of the call.
WITH shown AS (
    SELECT
        p.trace_profile_id, e.correlation, max(e.device) AS device, max(e.stream) AS stream,
        max(TRY_CAST(e.args ->> '$."event_id"' AS BIGINT)) AS event_number
    FROM events AS e
    JOIN _profiles AS p ON p.trace_id = e.trace_id
    WHERE e.cat = 'cuda_event' AND p.infer_waits AND e.correlation > 0
    GROUP BY p.trace_profile_id, e.correlation
)
SELECT
    e.trace_profile_id,  -- The trace as a profile sees it.
    e.event_id AS record_event_id,  -- The call.
    e.start_ns,  -- Its start, ns.
    e.correlation,  -- Its correlation id.
    coalesce(o.order_thread_id, e.thread_id) AS order_thread_id,  -- Thread whose order of calls includes the call.
    s.device,  -- Device of the stream on which the event was recorded; NULL without a cuda_event row.
    t.stream_id AS stream_key,  -- That stream; NULL without a cuda_event row, or if no work ran on it.
    s.correlation IS NOT NULL AS is_shown,  -- The record has a cuda_event row.
    s.event_number,  -- CUPTI's number of the event; NULL without a cuda_event row.
    -- Its number among the records of the trace, from 1.
    row_number() OVER (PARTITION BY e.trace_profile_id ORDER BY e.start_ns, e.event_id) AS record_no,
    -- Its number among the records of the thread, from 1.
    row_number() OVER (
        PARTITION BY e.trace_profile_id, coalesce(o.order_thread_id, e.thread_id) ORDER BY e.start_ns, e.event_id
    ) AS n_recorded,
    -- Start of the next record of the thread without a cuda_event row, ns; NULL if there is none.
    min(CASE WHEN s.correlation IS NULL THEN e.start_ns END) OVER (
        PARTITION BY e.trace_profile_id, coalesce(o.order_thread_id, e.thread_id) ORDER BY e.start_ns, e.event_id
        ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING
    ) AS next_unshown_ns
FROM _loaded_events AS e
JOIN _profiles AS p ON p.trace_profile_id = e.trace_profile_id AND p.infer_waits
LEFT JOIN _thread_roles AS o ON o.trace_profile_id = e.trace_profile_id AND o.thread_id = e.thread_id
LEFT JOIN shown AS s ON s.trace_profile_id = e.trace_profile_id AND s.correlation = e.correlation
LEFT JOIN streams AS t ON t.trace_id = p.trace_id AND t.device = s.device AND t.stream = s.stream
WHERE e.is_record
