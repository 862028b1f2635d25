-- One row: GPU work or a CPU call, and the GPU work that it waited for (by rule call_order: may have waited for), if
-- neither a cuda_sync row nor a stream wait call shows the wait.
-- How: the candidate on each other stream is the work that ended last before the wait was over. The candidate that
-- ended last counts. There are three kinds of evidence.
-- 1. In a trace without cuda_sync rows, GPU work that starts after a gap of more than 50 us waited for work that ended
-- at most 50 us before, or that covered half of the gap (both, if the trace has stream wait calls).
-- 2. A blocking call waited for work that was launched before the call and ended during it. A copying call waited for
-- its own copy. If work of another device ended during the call, a call for a device did not wait for a device that is
-- still busy after the call with work launched before it.
-- A call for one stream or event waits for one candidate. The usual time from the end of the work to the return of the
-- call is the median over calls in which only one candidate ended. The candidate closest to it counts, and the likely
-- one (likely_waits) has an advantage of half of the median.
-- 3. The order of calls (likely_waits) shows what a call has to wait for, whether or not the work ended during it. The
-- first work on a stream waited for work from before the trace if it began more than 1 ms after its launch returned. So
-- did a copy that a call waited for, if it began more than 1 ms after the call began and its stream was idle when the
-- call began. Later work of a graph's launch did not, because a launch whose first work has begun waits for nothing
-- earlier.
WITH inferring AS (
    SELECT DISTINCT p.trace_profile_id, p.trace_id, w.records_waits AS is_recorded
    FROM _profiles AS p
    JOIN _asked_windows AS w ON w.trace_profile_id = p.trace_profile_id
    WHERE p.infer_waits
),
-- One row: a call with a cuda_sync row that shows the awaited work of the call or of a stream, in a profile.
-- How: exclude Event Sync rows whose event is neither stated nor inferred.
shown_calls AS (
    SELECT DISTINCT
        l.trace_profile_id,  -- The trace as a profile sees it.
        l.launch_event_id AS call_event_id  -- The call.
    FROM _links AS l
    JOIN _loaded_events AS e ON e.trace_profile_id = l.trace_profile_id AND e.event_id = l.gpu_event_id
    LEFT JOIN _event_waits AS w ON w.trace_profile_id = e.trace_profile_id AND w.wait_event_id = e.event_id
    WHERE
        e.sync_kind IS NOT NULL
        AND (e.sync_kind <> 'Event Sync' OR w.source_kernel_id IS NOT NULL OR NOT w.is_inferred)
),
work AS (
    SELECT
        h.*,
        coalesce(lag(h.launch_event_id) OVER stream = h.launch_event_id, FALSE) AS continues_launch,
        greatest(h.busy_until_ns, h.launch_ts_ns) AS free_ns, i.is_recorded
    FROM _gpu_history AS h
    JOIN inferring AS i ON i.trace_profile_id = h.trace_profile_id
    WINDOW stream AS (PARTITION BY h.trace_profile_id, h.stream_key ORDER BY h.start_ns, h.event_id)
),
showing AS (
    SELECT DISTINCT e.trace_profile_id
    FROM _loaded_events AS e
    JOIN inferring AS i ON i.trace_profile_id = e.trace_profile_id
    WHERE e.is_wait
),
explained AS (
    SELECT DISTINCT trace_profile_id, waiting_kernel_id AS event_id
    FROM _event_waits
    WHERE source_kernel_id IS NOT NULL
),
own_copies AS (
    SELECT c.trace_profile_id, c.event_id, max(w.end_ns) AS end_ns
    FROM work AS w
    JOIN inferring AS i ON i.trace_profile_id = w.trace_profile_id
    JOIN events AS e ON e.trace_id = i.trace_id AND e.event_id = w.event_id AND e.cat = 'gpu_memcpy'
    JOIN _loaded_events AS c ON c.trace_profile_id = w.trace_profile_id AND c.event_id = w.launch_event_id
    LEFT JOIN shown_calls AS s ON s.trace_profile_id = c.trace_profile_id AND s.call_event_id = c.event_id
    WHERE
        s.call_event_id IS NULL
        AND w.end_ns > c.start_ns
        AND w.end_ns <= c.start_ns + c.duration_ns + greatest(
            threshold('call_disagrees_ns'),
            least(threshold('call_disagrees_most_ns'), c.duration_ns * threshold('call_disagrees_percent') // 100)
        )
        -- A call that need not block counts only if the stream was busy or the copy was long; otherwise its behavior is
        -- unknown. It did not wait if the copy began after the call, uses pinned memory, or is between devices.
        AND (
            c.is_blocking
            OR w.start_ns <= c.start_ns + c.duration_ns
            AND NOT regexp_matches(e.name, 'Pinned|DtoD|PtoP|DeviceToDevice|Device -> Device')
            AND (w.busy_until_ns > c.start_ns OR 2 * (w.end_ns - w.start_ns) >= w.end_ns - c.start_ns)
        )
    GROUP BY c.trace_profile_id, c.event_id
),
waits AS (
    -- In traces, work begins up to 2 us before the end of the awaited work.
    SELECT
        w.trace_profile_id, w.event_id, 'timing' AS basis, w.device, w.stream_key, w.start_ns AS before_ns,
        coalesce(w.free_ns, w.start_ns - threshold('wait_gap_ns') - 1) AS after_ns,
        w.start_ns + threshold('clock_disagrees_ns') AS until_ns,
        CAST(NULL AS BIGINT) AS returned_ns, w.start_ns, CAST(NULL AS VARCHAR) AS pid, FALSE AS waits_for_one,
        FALSE AS waits_for_stream
    FROM work AS w
    LEFT JOIN explained AS x ON x.trace_profile_id = w.trace_profile_id AND x.event_id = w.event_id
    WHERE
        NOT w.is_recorded AND x.event_id IS NULL AND NOT w.continues_launch
        AND (w.free_ns IS NULL OR w.start_ns - w.free_ns > threshold('wait_gap_ns'))
    UNION ALL
    -- A call may return up to 10 us (of a longer call 1 %, at most 50 us) before the end of the awaited work, because
    -- GPU and host clocks differ. Shorter calls are not evidence, and neither are calls that only query whether work
    -- has ended.
    SELECT
        e.trace_profile_id, e.event_id, 'blocking_call', NULL, NULL, e.start_ns, e.start_ns,
        e.start_ns + e.duration_ns + greatest(
            threshold('call_disagrees_ns'),
            least(threshold('call_disagrees_most_ns'), e.duration_ns * threshold('call_disagrees_percent') // 100)
        ),
        e.start_ns + e.duration_ns, NULL, t.pid, NOT e.waits_for_device,
        NOT e.waits_for_device AND NOT e.waits_for_event
    FROM _loaded_events AS e
    JOIN inferring AS i ON i.trace_profile_id = e.trace_profile_id
    JOIN threads AS t ON t.trace_id = i.trace_id AND t.thread_id = e.thread_id
    LEFT JOIN own_copies AS o ON o.trace_profile_id = e.trace_profile_id AND o.event_id = e.event_id
    LEFT JOIN shown_calls AS s ON s.trace_profile_id = e.trace_profile_id AND s.call_event_id = e.event_id
    WHERE
        e.is_blocking AND NOT e.is_poll AND e.duration_ns > threshold('blocking_call_ns') AND o.event_id IS NULL
        AND s.call_event_id IS NULL
),
stream_list AS (
    SELECT DISTINCT w.trace_profile_id, w.device, w.stream_key, t.pid
    FROM work AS w
    JOIN inferring AS i ON i.trace_profile_id = w.trace_profile_id
    LEFT JOIN _loaded_events AS c
        ON c.trace_profile_id = w.trace_profile_id AND c.event_id = w.launch_event_id
    LEFT JOIN threads AS t ON t.trace_id = i.trace_id AND t.thread_id = c.thread_id
),
-- Every wait, with every stream that may contain the awaited work.
asked AS (
    SELECT DISTINCT q.*, s.stream_key AS source_stream_key, s.device AS source_device
    FROM waits AS q
    JOIN stream_list AS s ON s.trace_profile_id = q.trace_profile_id
    WHERE
        -- A call waits for work that its own process launched.
        q.basis = 'blocking_call' AND coalesce(s.pid = q.pid, TRUE)
        OR q.basis <> 'blocking_call' AND s.device = q.device AND s.stream_key <> q.stream_key
),
launched AS (
    -- Work without a launch counts as launched before all other work, at the earliest time possible.
    SELECT
        trace_profile_id, stream_key, coalesce(launch_ts_ns, -9223372036854775807) AS at_ns,
        max(max(end_ns)) OVER (PARTITION BY trace_profile_id, stream_key ORDER BY at_ns) AS end_ns
    FROM work
    GROUP BY trace_profile_id, stream_key, at_ns
),
ended AS (
    SELECT DISTINCT trace_profile_id, stream_key, end_ns FROM work
),
endings AS (
    SELECT a.*, least(l.end_ns, e.end_ns) AS end_ns
    FROM asked AS a
    ASOF JOIN launched AS l
        ON l.trace_profile_id = a.trace_profile_id AND l.stream_key = a.source_stream_key AND l.at_ns < a.before_ns
    ASOF JOIN ended AS e
        ON e.trace_profile_id = a.trace_profile_id AND e.stream_key = a.source_stream_key AND e.end_ns <= a.until_ns
    WHERE
        least(l.end_ns, e.end_ns) > a.after_ns
        -- A stream with work still running is not the awaited stream.
        AND (NOT a.waits_for_stream OR l.end_ns <= e.end_ns)
),
going_on AS (
    SELECT DISTINCT a.trace_profile_id, a.event_id, a.source_device
    FROM asked AS a
    ASOF JOIN launched AS l
        ON l.trace_profile_id = a.trace_profile_id AND l.stream_key = a.source_stream_key AND l.at_ns < a.before_ns
    WHERE a.basis = 'blocking_call' AND NOT a.waits_for_one AND l.end_ns > a.until_ns
),
judged AS (
    SELECT n.*, g.event_id IS NOT NULL AS goes_on
    FROM endings AS n
    LEFT JOIN going_on AS g
        ON g.trace_profile_id = n.trace_profile_id AND g.event_id = n.event_id AND g.source_device = n.source_device
),
ended_devices AS (
    SELECT DISTINCT trace_profile_id, event_id FROM judged WHERE NOT goes_on
),
answers AS (
    SELECT j.*
    FROM judged AS j
    LEFT JOIN ended_devices AS d ON d.trace_profile_id = j.trace_profile_id AND d.event_id = j.event_id
    WHERE NOT j.goes_on OR d.event_id IS NULL
),
sources AS (
    SELECT
        a.trace_profile_id, a.event_id, a.basis, a.start_ns, a.after_ns, w.event_id AS source_event_id,
        w.start_ns AS source_ts_ns, a.end_ns, a.waits_for_one, a.returned_ns - a.end_ns AS return_ns
    FROM answers AS a
    JOIN work AS w
        ON w.trace_profile_id = a.trace_profile_id AND w.stream_key = a.source_stream_key AND w.end_ns = a.end_ns
    LEFT JOIN showing AS s ON s.trace_profile_id = a.trace_profile_id
    WHERE
        -- A call does not wait for work that is launched after the call began.
        a.basis = 'blocking_call' AND coalesce(w.launch_ts_ns < a.before_ns, TRUE)
        -- Work that began later was not awaited, however short it was.
        OR (w.start_ns < a.start_ns OR w.start_ns = a.start_ns AND w.event_id < a.event_id)
        AND CASE WHEN a.start_ns - a.end_ns <= threshold('wait_near_ns') THEN 1 ELSE 0 END
        + CASE
            WHEN a.end_ns - greatest(a.after_ns, w.start_ns) >= threshold('wait_fills_gap') * (a.start_ns - a.after_ns)
                THEN 1
            ELSE 0
        END
        >= CASE WHEN s.trace_profile_id IS NULL THEN 1 ELSE 2 END
),
covering AS (
    SELECT trace_profile_id FROM _profiles WHERE infer_waits AND covers_window
),
work_launches AS (
    SELECT
        h.trace_profile_id, h.launch_event_id, min(h.event_id) AS first_event_id, max(h.event_id) AS last_event_id
    FROM _gpu_history AS h
    JOIN covering AS i ON i.trace_profile_id = h.trace_profile_id
    WHERE h.launch_event_id IS NOT NULL
    GROUP BY h.trace_profile_id, h.launch_event_id
),
-- The work of each launch that ends last. Few launches have more than one GPU activity.
last_work AS (
    SELECT trace_profile_id, launch_event_id, last_event_id
    FROM work_launches
    WHERE first_event_id = last_event_id
    UNION ALL
    SELECT h.trace_profile_id, h.launch_event_id, h.event_id
    FROM _gpu_history AS h
    JOIN work_launches AS l ON l.trace_profile_id = h.trace_profile_id AND l.launch_event_id = h.launch_event_id
    WHERE l.first_event_id <> l.last_event_id
    QUALIFY
        row_number() OVER (
            PARTITION BY h.trace_profile_id, h.launch_event_id ORDER BY h.end_ns DESC, h.event_id DESC
        ) = 1
),
calls_in_order AS (
    SELECT
        e.trace_profile_id, e.event_id, e.start_ns, l.last_event_id, o.process_no, o.order_thread_id AS thread_id,
        e.is_record,
        e.is_blocking AND NOT e.is_poll AND l.launch_event_id IS NULL AND s.call_event_id IS NULL AS is_blocking,
        e.waits_for_device, e.waits_for_event, e.is_blocking AND l.launch_event_id IS NOT NULL AS is_copying
    FROM _loaded_events AS e
    JOIN covering AS i ON i.trace_profile_id = e.trace_profile_id
    JOIN _thread_roles AS o ON o.trace_profile_id = e.trace_profile_id AND o.thread_id = e.thread_id
    LEFT JOIN last_work AS l ON l.trace_profile_id = e.trace_profile_id AND l.launch_event_id = e.event_id
    LEFT JOIN shown_calls AS s ON s.trace_profile_id = e.trace_profile_id AND s.call_event_id = e.event_id
    WHERE e.is_operator AND (l.launch_event_id IS NOT NULL OR e.is_record OR e.is_blocking)
),
numbered_calls AS (
    SELECT
        *, row_number() OVER (PARTITION BY trace_profile_id, thread_id ORDER BY start_ns, event_id) AS ordinal
    FROM calls_in_order
),
thread_launches AS (
    SELECT trace_profile_id, thread_id, ordinal, last_event_id FROM numbered_calls WHERE last_event_id IS NOT NULL
),
-- The last launch of the thread before each call.
launching AS (
    SELECT n.*, l.last_event_id AS launched_event_id
    FROM numbered_calls AS n
    ASOF LEFT JOIN thread_launches AS l
        ON l.trace_profile_id = n.trace_profile_id AND l.thread_id = n.thread_id AND l.ordinal <= n.ordinal
),
records AS (
    SELECT trace_profile_id, thread_id, ordinal, launched_event_id
    FROM launching
    WHERE is_record AND launched_event_id IS NOT NULL
),
recording AS (
    SELECT c.*, r.launched_event_id AS recorded_event_id
    FROM launching AS c
    ASOF LEFT JOIN records AS r
        ON r.trace_profile_id = c.trace_profile_id AND r.thread_id = c.thread_id AND r.ordinal <= c.ordinal
),
device_syncs AS (
    SELECT trace_profile_id, event_id, start_ns, process_no
    FROM calls_in_order
    WHERE is_blocking AND waits_for_device
),
streams_of_processes AS (
    SELECT DISTINCT h.trace_profile_id, h.stream_key, c.process_no
    FROM _gpu_history AS h
    JOIN covering AS i ON i.trace_profile_id = h.trace_profile_id
    JOIN calls_in_order AS c ON c.trace_profile_id = h.trace_profile_id AND c.event_id = h.launch_event_id
),
on_streams AS (
    SELECT
        trace_profile_id, stream_key, event_id, is_sync,
        count(CASE WHEN NOT is_sync THEN 1 END) OVER (
            PARTITION BY trace_profile_id, stream_key ORDER BY at_ns, start_ns, event_id
            ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        ) AS n_launched
    FROM (
        SELECT
            h.trace_profile_id, h.stream_key, h.launch_ts_ns AS at_ns, h.start_ns, h.event_id, FALSE AS is_sync
        FROM _gpu_history AS h
        JOIN covering AS i ON i.trace_profile_id = h.trace_profile_id
        WHERE h.launch_ts_ns IS NOT NULL
        UNION ALL
        SELECT s.trace_profile_id, s.stream_key, d.start_ns, d.start_ns, d.event_id, TRUE
        FROM device_syncs AS d
        JOIN streams_of_processes AS s ON s.trace_profile_id = d.trace_profile_id AND s.process_no = d.process_no
    ) AS both_kinds
),
-- One row: a blocking call and GPU work that it may have waited for, if no cuda_sync row shows the wait.
-- How: by the order of calls on a thread, together with the autograd engine's threads that work for it. A blocking call
-- waits for the work launched last. A call for an event waits for the work launched last before the most recent event
-- record. A call for the whole device waits for the work launched last on every stream of its process. A copying call
-- waits for its own copy. The times decide whether a call did wait, because an edge only states a lower bound on the
-- time of its destination.
likely_waits AS (
    SELECT
        c.trace_profile_id,  -- The trace as a profile sees it.
        c.event_id,  -- A call that may have waited.
        c.source_event_id,  -- GPU work that it may have waited for.
        h.end_ns,  -- Its end, ns.
        c.waits_for_one  -- The call is for a single stream or event, so it waited for no other work.
    FROM (
        SELECT
            trace_profile_id, event_id,
            CASE WHEN waits_for_event THEN recorded_event_id ELSE launched_event_id END AS source_event_id,
            NOT waits_for_device AS waits_for_one
        FROM recording
        WHERE is_blocking
        UNION
        SELECT trace_profile_id, event_id, last_event_id, FALSE
        FROM launching
        WHERE is_copying
        UNION
        SELECT s.trace_profile_id, s.event_id, w.event_id, FALSE
        FROM on_streams AS s
        JOIN on_streams AS w
            ON w.trace_profile_id = s.trace_profile_id AND w.stream_key = s.stream_key AND w.n_launched = s.n_launched
        WHERE s.is_sync AND NOT w.is_sync
    ) AS c
    JOIN _gpu_history AS h ON h.scope_no = -c.trace_profile_id AND h.event_id = c.source_event_id
),
-- The likely work by the order of calls, if it ended during the call.
likely AS (
    SELECT
        w.trace_profile_id, w.event_id, l.source_event_id, l.end_ns, w.returned_ns - l.end_ns AS return_ns
    FROM waits AS w
    JOIN likely_waits AS l ON l.trace_profile_id = w.trace_profile_id AND l.event_id = w.event_id
    WHERE w.waits_for_one AND l.end_ns > w.after_ns AND l.end_ns <= w.until_ns
),
only_ended AS (
    SELECT trace_profile_id, event_id, min(return_ns) AS return_ns
    FROM sources
    WHERE waits_for_one
    GROUP BY trace_profile_id, event_id
    HAVING count(*) = 1
),
returns AS (
    SELECT trace_profile_id, median(return_ns) AS usual_ns FROM only_ended GROUP BY trace_profile_id
),
possible AS (
    SELECT
        s.trace_profile_id, s.event_id, s.basis, s.start_ns, s.source_event_id, s.end_ns,
        CASE WHEN s.waits_for_one THEN abs(s.return_ns - r.usual_ns) ELSE 0 END AS unusual_ns
    FROM sources AS s
    LEFT JOIN returns AS r ON r.trace_profile_id = s.trace_profile_id
    UNION ALL
    SELECT
        l.trace_profile_id, l.event_id, 'blocking_call', NULL, l.source_event_id, l.end_ns,
        abs(l.return_ns - r.usual_ns) - abs(r.usual_ns) / 2
    FROM likely AS l
    JOIN returns AS r ON r.trace_profile_id = l.trace_profile_id
),
-- A single order over all waits: a window function partitioned by wait takes ten times as long.
in_order AS (
    SELECT
        *,
        lag(event_id) OVER (
            PARTITION BY trace_profile_id
            ORDER BY
                event_id, unusual_ns, end_ns DESC, source_event_id DESC
        ) AS event_before
    FROM possible
),
latest AS (
    SELECT * FROM in_order WHERE event_before IS NULL OR event_before <> event_id
),
launch_starts AS (
    SELECT trace_profile_id, launch_event_id, min(start_ns) AS first_ns
    FROM work
    GROUP BY trace_profile_id, launch_event_id
)
SELECT
    trace_profile_id,  -- The trace as a profile sees it.
    event_id,  -- GPU work or a CPU call that waited.
    source_event_id,  -- GPU work that it waited for; NULL if the work was launched before the trace.
    -- End of that work, ns; the start of the waiting work if the awaited work is not in the trace.
    end_ns AS source_end_ns,
    basis = 'blocking_call' AS is_call,  -- TRUE: a CPU call waited; FALSE: GPU work did.
    basis,  -- The rule (wait_rules): timing, blocking_call, own_copy, before_trace or call_order.
    -- For call_order: the call is for one stream or event, so it waited for no other work. Else NULL.
    CAST(NULL AS BOOLEAN) AS waits_for_one
FROM latest
UNION ALL
SELECT o.trace_profile_id, o.event_id, max(w.event_id), o.end_ns, TRUE, 'own_copy', NULL
FROM own_copies AS o
JOIN work AS w ON w.trace_profile_id = o.trace_profile_id AND w.launch_event_id = o.event_id AND w.end_ns = o.end_ns
GROUP BY o.trace_profile_id, o.event_id, o.end_ns
UNION ALL
SELECT w.trace_profile_id, w.event_id, NULL, w.start_ns, FALSE, 'before_trace', NULL
FROM work AS w
JOIN inferring AS i ON i.trace_profile_id = w.trace_profile_id
JOIN events AS e ON e.trace_id = i.trace_id AND e.event_id = w.event_id
JOIN _loaded_events AS c ON c.trace_profile_id = w.trace_profile_id AND c.event_id = w.launch_event_id
JOIN launch_starts AS f ON f.trace_profile_id = w.trace_profile_id AND f.launch_event_id = w.launch_event_id
LEFT JOIN latest AS l ON l.trace_profile_id = w.trace_profile_id AND l.event_id = w.event_id
LEFT JOIN explained AS x ON x.trace_profile_id = w.trace_profile_id AND x.event_id = w.event_id
WHERE
    l.event_id IS NULL AND x.event_id IS NULL AND NOT w.is_recorded AND w.start_ns = f.first_ns
    AND (
        w.busy_until_ns IS NULL AND w.start_ns - (c.start_ns + c.duration_ns) > threshold('before_trace_ns')
        -- A call waited for its own copy, and the copy began late although no recorded work delayed it. A long launch
        -- is not evidence, because the launch itself was slow, for example because it loaded a module.
        OR e.cat = 'gpu_memcpy'
        AND w.end_ns <= c.start_ns + c.duration_ns + greatest(
            threshold('call_disagrees_ns'),
            least(threshold('call_disagrees_most_ns'), c.duration_ns * threshold('call_disagrees_percent') // 100)
        )
        AND w.start_ns - c.start_ns > threshold('before_trace_ns')
        AND (w.busy_until_ns IS NULL OR w.busy_until_ns < c.start_ns)
    )
UNION ALL
SELECT trace_profile_id, event_id, source_event_id, end_ns, TRUE, 'call_order', waits_for_one FROM likely_waits
