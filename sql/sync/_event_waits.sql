-- model: _event_records
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
WHERE e.is_record;

-- model: _waits_for_events
-- One row: a wait of a stream or a call for an event, with the facts that the trace states. The wait has a cuda_sync
-- row or, in profiles that infer waits, is a stream wait call without such a row.
-- How: a row states the record and its stream, only the record (Cuspy), or nothing (-1: Kineto with CUDA 12.9 and
-- later). A record with a cuda_event row is matched by its call or by the number of the event. It is matched by the
-- number only if its thread made no record without such a row before the wait. A row that states a record whose call is
-- not in the trace states at most the stream.
-- Of two calls with one correlation id, the later call is the record.
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
-- A later record without a row may belong to the same event.
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
    -- That stream; NULL if no stream of that number has work on the wait's device, or only the waiting stream has work.
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
    ON r.trace_profile_id = w.trace_profile_id AND r.record_no = coalesce(w.record_no, b.record_no);

-- model: _event_waits
-- One row: a wait for an event and GPU work that it delayed, joined to the record of the event, in a profile.
-- How: the wait delayed the launch that followed it (wait_targets). If a cuda_sync row states record and stream, the
-- record is joined to the last launch on its stream at or before the record (HTA 2.8.8). Otherwise see
-- inferred_sources.
WITH any_call AS (
    SELECT DISTINCT p.trace_profile_id
    FROM call_roles AS r
    JOIN _profiles AS p ON p.profile = r.profile
    WHERE r.role = 'launch' AND r.name = '*'
),
launched_work AS (
    SELECT
        c.trace_profile_id, c.event_id AS launch_event_id, c.thread_id, c.start_ns, g.device, g.stream_key,
        g.event_id AS gpu_event_id, g.start_ns AS gpu_ts_ns, g.start_ns + g.duration_ns AS gpu_end_ns
    FROM _links AS l
    JOIN _loaded_events AS c ON c.trace_profile_id = l.trace_profile_id AND c.event_id = l.launch_event_id
    JOIN _loaded_events AS g ON g.trace_profile_id = l.trace_profile_id AND g.event_id = l.gpu_event_id
    LEFT JOIN any_call AS a ON a.trace_profile_id = l.trace_profile_id
    WHERE
        g.stream_key IS NOT NULL AND l.is_known
        AND (c.is_launch OR a.trace_profile_id IS NOT NULL AND g.side = 'gpu')
),
launch_bounds AS (
    SELECT
        trace_profile_id, launch_event_id, stream_key, min(gpu_ts_ns) AS first_start_ns, max(gpu_end_ns) AS last_end_ns
    FROM launched_work
    GROUP BY trace_profile_id, launch_event_id, stream_key
),
-- One row: a call that launched GPU work on a stream, in a profile, with its first and last GPU activity there.
-- How: group links by call and stream. HTA identifies launches by name, with one kernel each (2.7, 2.8.8).
launches AS MATERIALIZED (
    SELECT
        w.trace_profile_id,  -- The trace as a profile sees it.
        w.launch_event_id,  -- The call.
        w.thread_id,  -- Its thread.
        w.start_ns,  -- Its start, ns.
        w.device,  -- Device that the work ran on.
        w.stream_key,  -- Stream as the profile sees it.
        -- First work on the stream.
        min(CASE WHEN w.gpu_ts_ns = b.first_start_ns THEN w.gpu_event_id END) AS first_gpu_event_id,
        -- Last work on the stream.
        max(CASE WHEN w.gpu_end_ns = b.last_end_ns THEN w.gpu_event_id END) AS last_gpu_event_id
    FROM launched_work AS w
    JOIN launch_bounds AS b
        ON b.trace_profile_id = w.trace_profile_id AND b.launch_event_id = w.launch_event_id
            AND b.stream_key = w.stream_key
    GROUP BY w.trace_profile_id, w.launch_event_id, w.thread_id, w.start_ns, w.device, w.stream_key
),
ordered_launches AS (
    SELECT
        l.trace_profile_id, l.launch_event_id, coalesce(o.order_thread_id, l.thread_id) AS order_thread_id, l.start_ns,
        l.stream_key, l.first_gpu_event_id
    FROM launches AS l
    LEFT JOIN _thread_roles AS o ON o.trace_profile_id = l.trace_profile_id AND o.thread_id = l.thread_id
),
stream_waits AS (
    SELECT * FROM _waits_for_events WHERE sync_kind = 'Stream Wait Event' AND is_wait
),
next_launches AS (
    SELECT
        trace_profile_id, order_thread_id, stream_key, start_ns,
        arg_min(first_gpu_event_id, launch_event_id) AS first_gpu_event_id
    FROM ordered_launches
    GROUP BY trace_profile_id, order_thread_id, stream_key, start_ns
),
-- The next launch of the thread on the waiting stream. A launch that begins at the same time counts as earlier.
after_wait AS (
    SELECT w.trace_profile_id, w.wait_event_id, l.first_gpu_event_id
    FROM stream_waits AS w
    ASOF JOIN next_launches AS l
        ON l.trace_profile_id = w.trace_profile_id AND l.order_thread_id = w.order_thread_id
            AND l.stream_key = w.stream_key AND l.start_ns > w.call_ts_ns
    WHERE w.has_row
),
-- Wait calls with an unknown stream, in the order of their thread.
calls AS (
    SELECT
        trace_profile_id, order_thread_id, call_ts_ns, wait_event_id,
        row_number() OVER (
            PARTITION BY trace_profile_id, order_thread_id ORDER BY call_ts_ns, wait_call_event_id
        ) AS call_no
    FROM stream_waits
    WHERE NOT has_row
),
thread_launches AS (
    SELECT
        trace_profile_id, order_thread_id, start_ns,
        arg_min(first_gpu_event_id, (launch_event_id, first_gpu_event_id)) AS first_gpu_event_id
    FROM ordered_launches
    GROUP BY trace_profile_id, order_thread_id, start_ns
),
after_call AS (
    SELECT c.trace_profile_id, c.order_thread_id, c.call_no, c.wait_event_id, l.first_gpu_event_id
    FROM calls AS c
    ASOF JOIN thread_launches AS l
        ON l.trace_profile_id = c.trace_profile_id AND l.order_thread_id = c.order_thread_id
            AND l.start_ns >= c.call_ts_ns
),
last_calls AS (
    SELECT trace_profile_id, order_thread_id, call_ts_ns, max(call_no) AS call_no
    FROM calls
    GROUP BY trace_profile_id, order_thread_id, call_ts_ns
),
-- The first launch on each stream after each such call and before the next such call.
first_launches AS (
    SELECT l.trace_profile_id, l.order_thread_id, c.call_no, l.first_gpu_event_id
    FROM ordered_launches AS l
    ASOF JOIN last_calls AS c
        ON c.trace_profile_id = l.trace_profile_id AND c.order_thread_id = l.order_thread_id
            AND c.call_ts_ns <= l.start_ns
    QUALIFY
        row_number() OVER (
            PARTITION BY l.trace_profile_id, l.order_thread_id, c.call_no, l.stream_key
            ORDER BY l.start_ns, l.launch_event_id
        ) = 1
),
-- If a wait with a row delayed the work, an earlier call without a row did not.
held_by_rows AS (
    SELECT DISTINCT trace_profile_id, first_gpu_event_id FROM after_wait
),
-- One row: a stream's wait for an event, and GPU work that it may have delayed.
-- How: the next launch of its thread, in the order of calls, on its stream (HTA 2.8.8). If the stream is unknown, the
-- candidates are the next launch of the thread, and the first launch on each other stream before the next such call of
-- the thread. Times decide between the candidates.
wait_targets AS MATERIALIZED (
    SELECT
        trace_profile_id,  -- The trace as a profile sees it.
        wait_event_id,  -- The wait.
        first_gpu_event_id AS waiting_kernel_id,  -- GPU work that waits.
        TRUE AS is_next  -- The work is the thread's next launch, or runs on the stream that is known to wait.
    FROM after_wait
    UNION ALL
    SELECT trace_profile_id, wait_event_id, first_gpu_event_id, TRUE
    FROM after_call
    UNION ALL
    SELECT w.trace_profile_id, w.wait_event_id, l.first_gpu_event_id, FALSE
    FROM after_call AS w
    JOIN first_launches AS l
        ON l.trace_profile_id = w.trace_profile_id AND l.order_thread_id = w.order_thread_id AND l.call_no = w.call_no
    LEFT JOIN held_by_rows AS h
        ON h.trace_profile_id = l.trace_profile_id AND h.first_gpu_event_id = l.first_gpu_event_id
    WHERE l.first_gpu_event_id <> w.first_gpu_event_id AND h.first_gpu_event_id IS NULL
),
writing_rows AS (
    SELECT DISTINCT trace_profile_id
    FROM _waits_for_events
    WHERE has_row AND sync_kind = 'Stream Wait Event'
),
inferring AS (
    SELECT DISTINCT p.trace_profile_id, p.trace_id
    FROM _waits_for_events AS w
    JOIN _profiles AS p ON p.trace_profile_id = w.trace_profile_id
    WHERE w.evidence <> 'record_and_stream'
),
processes AS (
    SELECT i.trace_profile_id, t.thread_id, t.pid
    FROM inferring AS i
    JOIN threads AS t ON t.trace_id = i.trace_id
),
-- Fully stated waits are included, because no other wait was for the same work. Each device numbers its own events.
waits AS (
    SELECT
        w.*,
        CASE
            WHEN w.event_number IS NOT NULL
                THEN dense_rank() OVER (PARTITION BY w.trace_profile_id ORDER BY w.device, w.event_number)
        END AS event_no,
        s.trace_profile_id IS NOT NULL AS writes_rows
    FROM _waits_for_events AS w
    JOIN inferring AS i ON i.trace_profile_id = w.trace_profile_id
    LEFT JOIN writing_rows AS s ON s.trace_profile_id = w.trace_profile_id
),
recording_threads AS (
    SELECT DISTINCT r.trace_profile_id, r.order_thread_id, t.pid
    FROM _event_records AS r
    JOIN processes AS t ON t.trace_profile_id = r.trace_profile_id AND t.thread_id = r.order_thread_id
),
work AS (
    SELECT
        h.trace_profile_id, h.event_id, h.stream_key, h.start_ns, h.end_ns, h.launch_event_id,
        -- Work without a launch counts as launched before all other work, at the earliest time possible.
        coalesce(h.launch_ts_ns, -9223372036854775807) AS launch_ts_ns,
        coalesce(o.order_thread_id, c.thread_id) AS order_thread_id, t.pid,
        greatest(h.busy_until_ns, h.launch_ts_ns) AS free_ns, h.busy_until_ns IS NULL AS is_first
    FROM _gpu_history AS h
    JOIN inferring AS i ON i.trace_profile_id = h.trace_profile_id
    LEFT JOIN _loaded_events AS c ON c.trace_profile_id = h.trace_profile_id AND c.event_id = h.launch_event_id
    LEFT JOIN _thread_roles AS o ON o.trace_profile_id = c.trace_profile_id AND o.thread_id = c.thread_id
    LEFT JOIN processes AS t ON t.trace_profile_id = c.trace_profile_id AND t.thread_id = c.thread_id
    WHERE h.scope_no < 0
),
-- A record that a wait states, or that a cuda_event row shows, belongs to the event of that wait.
known AS (
    SELECT DISTINCT trace_profile_id, record_event_id, event_no
    FROM waits
    WHERE record_event_id IS NOT NULL
),
free_records AS (
    SELECT
        r.trace_profile_id, r.record_event_id, r.start_ns, r.order_thread_id,
        row_number() OVER (PARTITION BY r.trace_profile_id, r.order_thread_id ORDER BY r.n_recorded) AS n_recorded
    FROM _event_records AS r
    LEFT JOIN known AS k ON k.trace_profile_id = r.trace_profile_id AND k.record_event_id = r.record_event_id
    WHERE k.record_event_id IS NULL
),
-- The number of other records, and of launches, of the thread before each wait whose record nothing else identifies.
numbered AS (
    SELECT
        trace_profile_id, order_thread_id, wait_event_id,
        count(CASE WHEN turn = 0 THEN 1 END) OVER (
            PARTITION BY trace_profile_id, order_thread_id ORDER BY at_ns, order_id
            ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        ) AS n_recorded,
        count(CASE WHEN turn = 2 THEN 1 END) OVER (
            PARTITION BY trace_profile_id, order_thread_id ORDER BY at_ns, order_id
            ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        ) AS n_launched
    FROM (
        SELECT
            trace_profile_id, order_thread_id, start_ns AS at_ns, 0 AS turn, record_event_id AS order_id,
            CAST(NULL AS BIGINT) AS wait_event_id
        FROM free_records
        UNION ALL
        SELECT trace_profile_id, order_thread_id, call_ts_ns, 1, wait_call_event_id, wait_event_id
        FROM waits
        WHERE evidence IN ('stream', 'calls') AND NOT record_is_missing
        UNION ALL
        SELECT DISTINCT trace_profile_id, order_thread_id, launch_ts_ns, 2, launch_event_id, CAST(NULL AS BIGINT)
        FROM work
        WHERE launch_event_id IS NOT NULL
    ) AS all_kinds
),
in_a_row AS (
    SELECT
        w.trace_profile_id,
        w.wait_event_id,
        w.order_thread_id,
        w.event_no,
        w.call_ts_ns,
        n.n_recorded,
        n.n_launched
    FROM waits AS w
    JOIN numbered AS n
        ON n.trace_profile_id = w.trace_profile_id AND n.order_thread_id = w.order_thread_id
            AND n.wait_event_id = w.wait_event_id
),
-- GROUP BY, here and below, because a window function partitioned by wait takes ten times as long.
last_of_event AS (
    SELECT trace_profile_id, order_thread_id, n_recorded, n_launched, event_no, max(call_ts_ns) AS last_ns
    FROM in_a_row
    WHERE event_no IS NOT NULL
    GROUP BY trace_profile_id, order_thread_id, n_recorded, n_launched, event_no
),
with_last AS (
    SELECT a.*, coalesce(l.last_ns, a.call_ts_ns) AS last_ns
    FROM in_a_row AS a
    LEFT JOIN last_of_event AS l
        ON l.trace_profile_id = a.trace_profile_id AND l.order_thread_id = a.order_thread_id
            AND l.n_recorded = a.n_recorded AND l.n_launched = a.n_launched AND l.event_no = a.event_no
),
placed AS (
    SELECT
        *,
        n_recorded + 1 - dense_rank() OVER (
            PARTITION BY trace_profile_id, order_thread_id, n_recorded, n_launched
            ORDER BY last_ns DESC, coalesce(event_no, -1 - wait_event_id)
        ) AS n_th
    FROM with_last
),
-- The start of each record that, according to a wait, is a record of an event.
same_event_records AS (
    SELECT k.trace_profile_id, k.event_no, r.start_ns, max(r.record_no) AS record_no
    FROM known AS k
    JOIN _event_records AS r
        ON r.trace_profile_id = k.trace_profile_id AND r.record_event_id = k.record_event_id
    GROUP BY k.trace_profile_id, k.event_no, r.start_ns
),
contested AS (
    SELECT
        *, lag(n_th) OVER (
            PARTITION BY trace_profile_id, order_thread_id, event_no ORDER BY n_th
        ) AS last_n_th
    FROM (
        SELECT trace_profile_id, order_thread_id, n_th, event_no, min(call_ts_ns) AS call_ts_ns
        FROM placed
        WHERE event_no IS NOT NULL
        GROUP BY trace_profile_id, order_thread_id, n_th, event_no
    ) AS claims
),
-- A record has one event. If waits for several event numbers compete for it, it belongs to the number whose preceding
-- record (a contested or a known record) is the oldest, because events that are recorded repeatedly take turns.
owners AS (
    SELECT c.trace_profile_id, c.order_thread_id, c.n_th, c.event_no
    FROM contested AS c
    LEFT JOIN free_records AS r
        ON r.trace_profile_id = c.trace_profile_id AND r.order_thread_id = c.order_thread_id
            AND r.n_recorded = c.last_n_th
    ASOF LEFT JOIN same_event_records AS k
        ON k.trace_profile_id = c.trace_profile_id AND k.event_no = c.event_no AND k.start_ns <= c.call_ts_ns
    QUALIFY
        row_number() OVER (
            PARTITION BY c.trace_profile_id, c.order_thread_id, c.n_th
            ORDER BY
                greatest(r.start_ns, k.start_ns) NULLS FIRST, c.last_n_th NULLS FIRST, c.call_ts_ns, c.event_no
        ) = 1
),
older AS (
    SELECT 0 AS n
    UNION ALL
    SELECT 1
    UNION ALL
    SELECT 2
    UNION ALL
    SELECT 3
),
-- The last record before a wait that, according to another wait, is a record of the same event.
of_same_event AS (
    SELECT p.trace_profile_id, p.wait_event_id, p.order_thread_id, r.record_no
    FROM placed AS p
    ASOF JOIN same_event_records AS r
        ON r.trace_profile_id = p.trace_profile_id AND r.event_no = p.event_no AND r.start_ns <= p.call_ts_ns
),
-- Materialized, here and below, because DuckDB overestimates the number of rows and would join other tables on the
-- trace alone.
numbers_asked AS MATERIALIZED (
    SELECT p.trace_profile_id, p.wait_event_id, p.order_thread_id, p.event_no, p.n_th - o.n AS n_recorded
    FROM placed AS p
    CROSS JOIN older AS o
),
likely_records AS (
    SELECT p.trace_profile_id, p.wait_event_id, p.order_thread_id, r.record_event_id, r.start_ns
    FROM numbers_asked AS p
    JOIN free_records AS r
        ON r.trace_profile_id = p.trace_profile_id AND r.order_thread_id = p.order_thread_id
            AND r.n_recorded = p.n_recorded
    LEFT JOIN owners AS c
        ON c.trace_profile_id = p.trace_profile_id AND c.order_thread_id = p.order_thread_id
            AND c.n_th = r.n_recorded
    WHERE coalesce(c.event_no = p.event_no, TRUE)
    UNION ALL
    SELECT o.trace_profile_id, o.wait_event_id, o.order_thread_id, r.record_event_id, r.start_ns
    FROM of_same_event AS o
    JOIN _event_records AS r ON r.trace_profile_id = o.trace_profile_id AND r.record_no = o.record_no
),
thread_records AS (
    SELECT trace_profile_id, order_thread_id, start_ns, max(n_recorded) AS n_recorded
    FROM _event_records
    GROUP BY trace_profile_id, order_thread_id, start_ns
),
-- The last record of each other thread of the process before a wait.
of_other_threads AS (
    SELECT p.trace_profile_id, r.order_thread_id, p.wait_event_id, r.n_recorded
    FROM placed AS p
    JOIN processes AS o ON o.trace_profile_id = p.trace_profile_id AND o.thread_id = p.order_thread_id
    JOIN recording_threads AS t
        ON t.trace_profile_id = p.trace_profile_id AND t.pid = o.pid AND t.order_thread_id <> p.order_thread_id
    ASOF JOIN thread_records AS r
        ON r.trace_profile_id = p.trace_profile_id AND r.order_thread_id = t.order_thread_id
            AND r.start_ns <= p.call_ts_ns
),
-- The mark before which the work must have been launched: the record or, without a record, the wait itself.
candidates AS (
    SELECT
        trace_profile_id, wait_event_id, order_thread_id, record_event_id, record_event_id AS mark_event_id,
        start_ns AS mark_ns, FALSE AS is_of_other_thread,
        row_number() OVER (
            PARTITION BY trace_profile_id, wait_event_id ORDER BY start_ns DESC, record_event_id DESC
        ) AS age
    FROM likely_records
    UNION ALL
    SELECT
        o.trace_profile_id, o.wait_event_id, o.order_thread_id, r.record_event_id, r.record_event_id, r.start_ns, TRUE,
        9
    FROM of_other_threads AS o
    JOIN _event_records AS r
        ON r.trace_profile_id = o.trace_profile_id AND r.order_thread_id = o.order_thread_id
            AND r.n_recorded = o.n_recorded
    UNION ALL
    SELECT
        w.trace_profile_id, w.wait_event_id, r.order_thread_id, r.record_event_id, r.record_event_id, r.start_ns, FALSE,
        1
    FROM waits AS w
    JOIN _event_records AS r
        ON r.trace_profile_id = w.trace_profile_id AND r.record_event_id = w.record_event_id
    WHERE w.evidence NOT IN ('stream', 'calls')
    UNION ALL
    SELECT
        w.trace_profile_id, w.wait_event_id, w.order_thread_id, NULL, w.wait_call_event_id, w.call_ts_ns, FALSE,
        10
    FROM waits AS w
    LEFT JOIN likely_records AS r ON r.trace_profile_id = w.trace_profile_id AND r.wait_event_id = w.wait_event_id
    WHERE w.evidence IN ('stream', 'calls') AND r.wait_event_id IS NULL
),
stream_list AS (
    SELECT DISTINCT w.trace_profile_id, w.stream_key, w.pid, s.stream
    FROM work AS w
    JOIN inferring AS i ON i.trace_profile_id = w.trace_profile_id
    LEFT JOIN streams AS s ON s.trace_id = i.trace_id AND s.stream_id = w.stream_key
),
marks AS (
    SELECT DISTINCT c.trace_profile_id, c.mark_event_id, c.mark_ns, c.order_thread_id, s.stream_key, s.stream
    FROM candidates AS c
    LEFT JOIN processes AS t ON t.trace_profile_id = c.trace_profile_id AND t.thread_id = c.order_thread_id
    JOIN stream_list AS s ON s.trace_profile_id = c.trace_profile_id AND coalesce(s.pid = t.pid, TRUE)
),
launched_until AS (
    SELECT
        trace_profile_id, stream_key, launch_ts_ns,
        max(max(end_ns)) OVER (PARTITION BY trace_profile_id, stream_key ORDER BY launch_ts_ns) AS end_ns
    FROM work
    GROUP BY trace_profile_id, stream_key, launch_ts_ns
),
launched_by AS (
    SELECT DISTINCT trace_profile_id, stream_key, order_thread_id, launch_ts_ns FROM work
),
-- For the work launched on each stream before each mark: the latest end, and the last launch of the mark's thread.
states AS (
    SELECT m.trace_profile_id, m.stream_key, m.stream, m.mark_event_id, u.end_ns, l.launch_ts_ns AS launched_ns
    FROM marks AS m
    ASOF JOIN launched_until AS u
        ON u.trace_profile_id = m.trace_profile_id AND u.stream_key = m.stream_key AND u.launch_ts_ns <= m.mark_ns
    ASOF LEFT JOIN launched_by AS l
        ON l.trace_profile_id = m.trace_profile_id AND l.stream_key = m.stream_key
            AND l.order_thread_id = m.order_thread_id AND l.launch_ts_ns <= m.mark_ns
),
candidate_states AS MATERIALIZED (
    SELECT
        c.trace_profile_id, c.wait_event_id, c.record_event_id, c.mark_event_id, c.age, c.is_of_other_thread,
        s.stream_key, s.stream, s.end_ns, s.launched_ns
    FROM candidates AS c
    JOIN states AS s ON s.trace_profile_id = c.trace_profile_id AND s.mark_event_id = c.mark_event_id
),
ends AS (
    SELECT trace_profile_id, stream_key, end_ns, max(event_id) AS event_id, max(start_ns) AS start_ns
    FROM work
    GROUP BY trace_profile_id, stream_key, end_ns
),
-- The work or call that each wait delayed. Work began no earlier than 2 us before the end of the awaited work. A call
-- returned up to 10 us before that end (of a longer call 1 %, at most 50 us).
held_up AS MATERIALIZED (
    SELECT
        w.trace_profile_id,
        w.wait_event_id,
        w.evidence,
        w.has_source_stream,
        w.source_stream_key,
        w.is_shown,
        w.wait_on_stream,
        t.waiting_kernel_id,
        t.is_next,
        k.stream_key, k.start_ns, k.start_ns + threshold('clock_disagrees_ns') AS until_ns, k.free_ns,
        t.is_next AND (w.has_row OR NOT w.writes_rows OR k.is_first) AS may_be_likely,
        w.has_row OR NOT w.writes_rows AS may_be_weak
    FROM waits AS w
    JOIN wait_targets AS t
        ON t.trace_profile_id = w.trace_profile_id AND t.wait_event_id = w.wait_event_id
    JOIN work AS k ON k.trace_profile_id = w.trace_profile_id AND k.event_id = t.waiting_kernel_id
    UNION ALL
    SELECT
        trace_profile_id, wait_event_id, evidence, has_source_stream, source_stream_key, is_shown, wait_on_stream, NULL,
        TRUE, NULL, call_end_ns,
        call_end_ns + greatest(
            threshold('call_disagrees_ns'),
            least(
                threshold('call_disagrees_most_ns'),
                (call_end_ns - call_ts_ns) * threshold('call_disagrees_percent') // 100
            )
        ),
        call_ts_ns, TRUE, TRUE
    FROM waits
    WHERE sync_kind = 'Event Sync'
),
possible AS (
    SELECT
        h.*, s.record_event_id, s.age, s.is_of_other_thread, s.stream_key AS on_stream_key, s.end_ns,
        -- The recording thread's last launch on another stream was on this stream, or this is the only other stream.
        row_number() OVER (
            PARTITION BY h.trace_profile_id, h.wait_event_id, h.waiting_kernel_id, s.mark_event_id
            ORDER BY s.launched_ns DESC NULLS LAST, s.stream_key
        ) = 1
        AND (
            s.launched_ns IS NOT NULL
            OR count(*) OVER (
                PARTITION BY h.trace_profile_id, h.wait_event_id, h.waiting_kernel_id, s.mark_event_id
            ) = 1
        ) AS is_last_launched
    FROM held_up AS h
    JOIN candidate_states AS s
        ON s.trace_profile_id = h.trace_profile_id AND s.wait_event_id = h.wait_event_id
    WHERE
        CASE
            WHEN h.has_source_stream AND NOT h.is_shown AND h.source_stream_key IS NULL
                THEN s.stream = h.wait_on_stream
            WHEN h.has_source_stream THEN s.stream_key = h.source_stream_key
            ELSE h.stream_key IS NULL OR s.stream_key <> h.stream_key
        END
),
ranked AS (
    SELECT
        p.trace_profile_id, p.wait_event_id, p.waiting_kernel_id, p.is_next, p.record_event_id, p.age, p.end_ns,
        p.evidence, e.event_id AS source_kernel_id, p.has_source_stream OR p.is_last_launched AS is_likely,
        CASE
            WHEN p.evidence IN ('record_and_stream', 'cuda_event') THEN 1
            WHEN e.start_ns >= p.start_ns OR p.end_ns > p.until_ns THEN NULL
            WHEN p.end_ns > p.free_ns AND p.start_ns - p.end_ns <= threshold('wait_close_ns') AND p.is_last_launched
                THEN 1
            WHEN p.end_ns > p.free_ns AND p.start_ns - p.end_ns <= threshold('wait_near_ns') THEN 2
            WHEN
                p.end_ns > p.free_ns
                AND p.end_ns - greatest(p.free_ns, e.start_ns) >= threshold('wait_fills_gap') * (p.start_ns - p.free_ns)
                THEN 3
            WHEN p.is_of_other_thread THEN NULL
            WHEN p.is_last_launched AND p.may_be_likely AND p.record_event_id IS NOT NULL THEN 4
            WHEN p.end_ns > p.free_ns AND p.may_be_weak THEN 5
        END AS tier
    FROM possible AS p
    JOIN ends AS e
        ON e.trace_profile_id = p.trace_profile_id AND e.stream_key = p.on_stream_key AND e.end_ns = p.end_ns
    UNION ALL
    -- Only the record, if no work before it can be the awaited work.
    SELECT c.trace_profile_id, c.wait_event_id, NULL, TRUE, c.record_event_id, c.age, NULL, w.evidence, NULL, FALSE, 9
    FROM candidates AS c
    JOIN waits AS w ON w.trace_profile_id = c.trace_profile_id AND w.wait_event_id = c.wait_event_id
    WHERE c.age = 1
),
likely_pairs AS (
    SELECT DISTINCT trace_profile_id, waiting_kernel_id, source_kernel_id
    FROM ranked
    WHERE tier <= 4 AND is_likely
),
-- If one GPU activity has several waits, the source that times support belongs to the wait for which its stream is
-- likely.
supported AS (
    SELECT r.*
    FROM ranked AS r
    LEFT JOIN likely_pairs AS l
        ON l.trace_profile_id = r.trace_profile_id AND l.waiting_kernel_id IS NOT DISTINCT FROM r.waiting_kernel_id
            AND l.source_kernel_id IS NOT DISTINCT FROM r.source_kernel_id
    WHERE r.tier > 3 OR r.tier IS NOT NULL AND (r.is_likely OR l.trace_profile_id IS NULL)
),
best_tiers AS (
    SELECT trace_profile_id, wait_event_id, min(tier) AS best_tier
    FROM supported
    GROUP BY trace_profile_id, wait_event_id
),
-- One row: a wait for an event whose record or stream the trace does not state, the work that it delayed, and the GPU
-- work that it most likely waited for.
-- How: 1. The record is the stated or shown record, otherwise the last record call of the thread (a CUDA, HIP or driver
-- call) before the wait. Each of several waits in a row has its own record, in order. Waits for one event number share
-- their record, and records of another event number are excluded. If times contradict the record, the next older record
-- counts, up to the fourth, or the last record of another thread. A record of another thread counts only if its awaited
-- work ended in the gap before the waiting work, as defined in 2.
-- 2. The record's stream is any other stream whose last work before the record had ended when the waiting work began
-- (within 2 us; clocks disagree). The likely stream is the stream on which the recording thread launched last, or the
-- only other stream. The first match in this order counts: (1) likely work that ended in the gap, at most 10 us before
-- the waiting work; (2) any work that ended in the gap, at most 50 us before; (3) any work that fills half of the gap;
-- (4) likely work; (5) any work that ended in the gap.
-- 3. Records and work of other processes do not count.
-- A wait without any record before it, or for a record whose call is not in the trace, waits for work launched before
-- the wait.
inferred_sources AS (
    SELECT
        s.trace_profile_id,  -- The trace as a profile sees it.
        s.wait_event_id,  -- The wait.
        s.record_event_id,  -- The record; NULL if no record of the thread precedes the wait.
        s.waiting_kernel_id,  -- GPU work that waits; NULL if the call waits (Event Sync).
        s.source_kernel_id,  -- GPU work that had to end first; NULL if no work fits.
        s.is_next,  -- As in wait_targets.
        s.tier  -- How well times support the source: the number in the list under How, 1 to 5; 9 if no work fits.
    FROM supported AS s
    JOIN best_tiers AS b ON b.trace_profile_id = s.trace_profile_id AND b.wait_event_id = s.wait_event_id
    WHERE s.evidence <> 'record_and_stream' AND (s.tier < 9 OR b.best_tier = 9)
    QUALIFY
        row_number() OVER (
            PARTITION BY s.trace_profile_id, s.wait_event_id, s.waiting_kernel_id
            ORDER BY s.tier, s.age, s.end_ns DESC, s.source_kernel_id DESC
        ) = 1
),
stated_waits AS (
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
    SELECT DISTINCT trace_profile_id, device, stream_key FROM launches
),
-- The waiting device may differ from the device on which the event was recorded. Unless a cuda_event row shows the
-- latter, every device with that stream is a candidate, first the device of the wait. If that stream is the waiting
-- stream, which would not be a wait, the candidate with the latest launch counts.
waited_on AS (
    SELECT
        w.trace_profile_id, w.wait_event_id, w.record_correlation, w.device AS wait_device,
        w.stream_key AS wait_stream_key, l.device, l.stream_key
    FROM stated_waits AS w
    JOIN launched_on AS l
        ON l.trace_profile_id = w.trace_profile_id AND l.device = w.device AND l.stream_key = w.wait_on_stream
    WHERE NOT w.stream_by_device
    UNION ALL
    SELECT
        w.trace_profile_id, w.wait_event_id, w.record_correlation, w.device, w.stream_key, l.device, l.stream_key
    FROM stated_waits AS w
    JOIN _profiles AS p ON p.trace_profile_id = w.trace_profile_id
    JOIN streams AS s ON s.trace_id = p.trace_id AND s.stream = w.wait_on_stream
    JOIN launched_on AS l ON l.trace_profile_id = w.trace_profile_id AND l.stream_key = s.stream_id
    WHERE w.stream_by_device AND (NOT w.is_shown OR s.stream_id = w.source_stream_key)
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
last_launches AS (
    SELECT
        trace_profile_id, device, stream_key, start_ns, arg_max(last_gpu_event_id, launch_event_id) AS last_gpu_event_id
    FROM launches
    GROUP BY trace_profile_id, device, stream_key, start_ns
),
-- The last launch on each candidate stream at or before the record.
sources AS (
    SELECT
        r.trace_profile_id, r.record_event_id, r.device, r.stream_key, l.last_gpu_event_id AS source_kernel_id,
        l.start_ns AS launched_ns
    FROM record_places AS r
    ASOF JOIN last_launches AS l
        ON l.trace_profile_id = r.trace_profile_id AND l.device = r.device AND l.stream_key = r.stream_key
            AND l.start_ns <= r.start_ns
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
    w.wait_event_id,  -- The cuda_sync row, or the call if it has no row.
    w.sync_kind AS wait_kind,  -- Stream Wait Event or Event Sync.
    w.wait_call_event_id,  -- The CPU call that waits or makes the stream wait.
    w.end_ns AS wait_end_ns,  -- End of the cuda_sync row, ns.
    r.record_event_id,  -- The CPU call that recorded the event; NULL if it is unknown or not in the trace.
    s.source_kernel_id,  -- GPU work that must end first; NULL if no work was launched before the record.
    t.waiting_kernel_id,  -- GPU work that waits; NULL for Event Sync (the CPU call waits) and if no work followed.
    w.evidence,  -- As in _waits_for_events; none if no call before the wait records its event.
    NOT q.is_recorded AS is_inferred,  -- The record or its stream is inferred (wait_rules).
    TRUE AS is_best  -- The most likely of the GPU activities that the wait may have delayed.
FROM stated_waits AS w
JOIN wait_rules AS q ON q.rule = w.evidence
LEFT JOIN records AS r ON r.trace_profile_id = w.trace_profile_id AND r.correlation = w.record_correlation
LEFT JOIN wait_sources AS s
    ON s.trace_profile_id = w.trace_profile_id AND s.wait_event_id = w.wait_event_id AND s.choice = 1
LEFT JOIN wait_targets AS t ON t.trace_profile_id = w.trace_profile_id AND t.wait_event_id = w.wait_event_id
UNION ALL
SELECT
    w.trace_profile_id, w.wait_event_id, w.sync_kind, w.wait_call_event_id, w.end_ns,
    coalesce(i.record_event_id, w.record_event_id), i.source_kernel_id,
    coalesce(i.waiting_kernel_id, t.waiting_kernel_id),
    CASE WHEN w.evidence = 'calls' AND i.record_event_id IS NULL THEN 'none' ELSE w.evidence END, NOT q.is_recorded,
    row_number() OVER (
        PARTITION BY w.trace_profile_id, w.wait_event_id ORDER BY i.tier, i.is_next DESC, i.waiting_kernel_id
    ) = 1
FROM _waits_for_events AS w
JOIN wait_rules AS q ON q.rule = w.evidence
LEFT JOIN inferred_sources AS i
    ON i.trace_profile_id = w.trace_profile_id AND i.wait_event_id = w.wait_event_id
LEFT JOIN wait_targets AS t
    ON t.trace_profile_id = w.trace_profile_id AND t.wait_event_id = w.wait_event_id AND t.is_next
WHERE w.evidence <> 'record_and_stream';
