-- model: _queue_waits
-- One row: a launch call into a stream whose queue is full at times, and the GPU work that must end before the call can
-- return.
-- How: a stream's queue has room for a fixed number of launches whose work has not begun (CUDA: 1,021 on an H100). When
-- the queue is full, the next call returns when the first launch in the queue begins on the GPU. Host-device copies
-- occupy no slot of the queue, but delay the work queued behind them.
-- The limit, 99 or more, is inferred as the depth at which most slow launches (over 20 us; at least 8) occur. No call
-- finds a depth greater by more than 2 (clocks disagree). At that depth, nine of ten calls return after the work before
-- the first launch in the queue has ended. Nine of ten slow calls also return soon after that launch begins: within 15
-- us, or within a quarter of the call's duration and at most 50 us (a slow profiler). A slow launch at any other depth
-- is slow for other reasons.
-- On such a stream, a call can return only after the launch that precedes it by that number of launches has begun, so
-- the work before that launch must end first. Launches whose work would begin after the end of the trace (half of the
-- launches in an export of one second) occupy slots, too. If such a launch call is slow and returns right after work of
-- the stream began, it waited for the work before that.
-- Only in profiles that infer waits.
WITH suspects AS (
    SELECT h.trace_profile_id, h.stream_key
    FROM _gpu_history AS h
    JOIN _profiles AS p ON p.trace_profile_id = h.trace_profile_id AND p.covers_window AND p.infer_waits
    JOIN _loaded_events AS c ON c.trace_profile_id = h.trace_profile_id AND c.event_id = h.launch_event_id
    WHERE c.duration_ns > threshold('slow_launch_ns') AND h.busy_until_ns > h.launch_ts_ns + c.duration_ns
    GROUP BY h.trace_profile_id, h.stream_key
    HAVING count(*) >= threshold('full_queue_slow_launches')
),
-- The work before each GPU activity on its stream.
in_order AS (
    SELECT
        h.trace_profile_id, h.stream_key, h.event_id, h.launch_event_id, h.launch_ts_ns, h.start_ns,
        lag(h.event_id) OVER (
            PARTITION BY h.trace_profile_id, h.stream_key ORDER BY h.start_ns, h.event_id
        ) AS before_event_id,
        lag(h.end_ns) OVER (
            PARTITION BY h.trace_profile_id, h.stream_key ORDER BY h.start_ns, h.event_id
        ) AS before_end_ns
    FROM _gpu_history AS h
    JOIN suspects AS s ON s.trace_profile_id = h.trace_profile_id AND s.stream_key = h.stream_key
),
-- A graph launch counts as one launch. It begins with its first work on the stream.
work AS (
    SELECT
        o.*,
        row_number() OVER (
            PARTITION BY o.trace_profile_id, o.stream_key, coalesce(o.launch_event_id, -1 - o.event_id)
            ORDER BY o.start_ns, o.event_id
        ) AS place
    FROM in_order AS o
    JOIN _profiles AS p ON p.trace_profile_id = o.trace_profile_id
    JOIN events AS e ON e.trace_id = p.trace_id AND e.event_id = o.event_id
    WHERE e.cat <> 'gpu_memcpy' OR NOT regexp_matches(e.name, 'HtoD|DtoH|HostToDevice|DeviceToHost')
),
launches AS (
    SELECT
        w.trace_profile_id, w.stream_key, w.launch_event_id, w.launch_ts_ns, c.duration_ns, w.start_ns,
        w.before_event_id, w.before_end_ns,
        row_number() OVER (
            PARTITION BY w.trace_profile_id, w.stream_key ORDER BY w.start_ns, w.event_id
        ) AS ordinal
    FROM work AS w
    LEFT JOIN _loaded_events AS c ON c.trace_profile_id = w.trace_profile_id AND c.event_id = w.launch_event_id
    WHERE w.place = 1
),
-- The number of launches that have begun on the GPU when each call begins.
begun AS (
    SELECT
        trace_profile_id, stream_key, ordinal, is_call,
        sum(CASE WHEN is_call = 0 THEN 1 ELSE 0 END) OVER (
            PARTITION BY trace_profile_id, stream_key ORDER BY at_ns, is_call
            ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        ) AS n_begun
    FROM (
        SELECT trace_profile_id, stream_key, ordinal, start_ns AS at_ns, 0 AS is_call FROM launches
        UNION ALL
        SELECT trace_profile_id, stream_key, ordinal, launch_ts_ns, 1 FROM launches WHERE launch_ts_ns IS NOT NULL
    ) AS marks
),
-- The return of each call, relative to the launch that was first in the queue when the call began.
depths AS (
    SELECT
        b.trace_profile_id, b.stream_key, b.ordinal - 1 - b.n_begun AS depth,
        l.duration_ns > threshold('slow_launch_ns') AS is_slow,
        l.launch_ts_ns + l.duration_ns >= s.before_end_ns AS is_after,
        l.launch_ts_ns + l.duration_ns - s.start_ns <= greatest(
            threshold('queue_return_ns'),
            least(threshold('queue_return_most_ns'), l.duration_ns * threshold('queue_return_percent') // 100)
        ) AS is_at_once
    FROM begun AS b
    JOIN launches AS l
        ON l.trace_profile_id = b.trace_profile_id AND l.stream_key = b.stream_key AND l.ordinal = b.ordinal
    JOIN launches AS s
        ON s.trace_profile_id = b.trace_profile_id AND s.stream_key = b.stream_key AND s.ordinal = b.n_begun + 1
    WHERE b.is_call = 1
),
levels AS (
    SELECT
        trace_profile_id, stream_key, depth, count(*) AS n_calls, count(*) FILTER (WHERE is_after) AS n_after,
        count(*) FILTER (WHERE is_slow) AS n_slow,
        count(*) FILTER (WHERE is_slow AND is_after AND is_at_once) AS n_at_once
    FROM depths
    GROUP BY trace_profile_id, stream_key, depth
),
ranked AS (
    SELECT
        *,
        row_number() OVER (PARTITION BY trace_profile_id, stream_key ORDER BY n_slow DESC, depth DESC) AS choice,
        max(depth) OVER (PARTITION BY trace_profile_id, stream_key) AS most
    FROM levels
),
full_queues AS (
    SELECT trace_profile_id, stream_key, depth
    FROM ranked
    WHERE
        choice = 1 AND depth >= threshold('full_queue_work') - 1 AND most <= depth + threshold('full_queue_deeper')
        AND n_slow >= threshold('full_queue_slow_launches')
        AND 100 * n_after >= threshold('full_queue_percent') * n_calls
        AND 100 * n_at_once >= threshold('full_queue_percent') * n_slow
),
-- The last launch of the stream whose work is in the trace.
last_known AS (
    SELECT
        f.trace_profile_id, f.stream_key, f.depth, l.launch_ts_ns, c.thread_id,
        max(l.ordinal) OVER (PARTITION BY f.trace_profile_id, f.stream_key) AS n_known
    FROM full_queues AS f
    JOIN launches AS l ON l.trace_profile_id = f.trace_profile_id AND l.stream_key = f.stream_key
    JOIN _loaded_events AS c ON c.trace_profile_id = l.trace_profile_id AND c.event_id = l.launch_event_id
    QUALIFY
        row_number() OVER (
            PARTITION BY f.trace_profile_id, f.stream_key ORDER BY l.launch_ts_ns DESC, l.launch_event_id
        ) = 1
),
-- Later calls on the thread of that launch whose work is not in the trace. Copies count, because their direction is
-- unknown.
late_calls AS (
    SELECT
        k.trace_profile_id, k.stream_key, k.depth, k.n_known, c.event_id, c.start_ns, c.duration_ns,
        contains(e.name, 'Launch') AS is_launch,
        row_number() OVER (PARTITION BY k.trace_profile_id, k.stream_key ORDER BY c.start_ns, c.event_id) AS n_late
    FROM last_known AS k
    JOIN _loaded_events AS c
        ON c.trace_profile_id = k.trace_profile_id AND c.thread_id = k.thread_id AND c.start_ns > k.launch_ts_ns
    JOIN _profiles AS p ON p.trace_profile_id = c.trace_profile_id
    JOIN events AS e ON e.trace_id = p.trace_id AND e.event_id = c.event_id
    LEFT JOIN _links AS l ON l.trace_profile_id = c.trace_profile_id AND l.launch_event_id = c.event_id
    WHERE
        l.gpu_event_id IS NULL AND c.is_operator
        AND regexp_matches(e.name, '^(cuda|cu|hip)[A-Za-z]*(Launch|Memcpy|Memset)')
),
-- The number of launches that could begin before each of these calls began, and before it returned.
late_marks AS (
    SELECT
        trace_profile_id, stream_key, event_id, turn,
        sum(CASE WHEN turn = 0 THEN 1 ELSE 0 END) OVER (
            PARTITION BY trace_profile_id, stream_key ORDER BY at_ns, turn
            ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        ) AS n_free
    FROM (
        SELECT
            l.trace_profile_id, l.stream_key, l.launch_event_id AS event_id,
            coalesce(l.before_end_ns, l.start_ns) AS at_ns, 0 AS turn
        FROM launches AS l
        JOIN full_queues AS f ON f.trace_profile_id = l.trace_profile_id AND f.stream_key = l.stream_key
        UNION ALL
        SELECT trace_profile_id, stream_key, event_id, start_ns, 1 FROM late_calls
        UNION ALL
        SELECT trace_profile_id, stream_key, event_id, start_ns + duration_ns, 2 FROM late_calls
    ) AS marks
),
late_waits AS (
    SELECT c.trace_profile_id, c.event_id, s.before_event_id, s.before_end_ns
    FROM late_calls AS c
    JOIN late_marks AS b
        ON b.trace_profile_id = c.trace_profile_id AND b.stream_key = c.stream_key AND b.event_id = c.event_id
            AND b.turn = 1
    JOIN late_marks AS r
        ON r.trace_profile_id = c.trace_profile_id AND r.stream_key = c.stream_key AND r.event_id = c.event_id
            AND r.turn = 2
    JOIN launches AS s
        ON s.trace_profile_id = c.trace_profile_id AND s.stream_key = c.stream_key AND s.ordinal = r.n_free
    WHERE
        c.is_launch AND c.duration_ns > threshold('slow_launch_ns')
        AND c.n_known - b.n_free + c.n_late - 1 >= c.depth - threshold('full_queue_deeper')
        AND c.start_ns + c.duration_ns - s.start_ns <= greatest(
            threshold('queue_return_ns'),
            least(threshold('queue_return_most_ns'), c.duration_ns * threshold('queue_return_percent') // 100)
        )
        AND s.before_event_id IS NOT NULL
)
SELECT
    l.trace_profile_id,  -- The trace as a profile sees it.
    l.launch_event_id AS event_id,  -- The call.
    s.before_event_id AS source_event_id,  -- GPU work that must end before the call can return.
    s.before_end_ns AS source_end_ns  -- Its end, ns.
FROM full_queues AS f
JOIN launches AS l ON l.trace_profile_id = f.trace_profile_id AND l.stream_key = f.stream_key
JOIN launches AS s
    ON s.trace_profile_id = f.trace_profile_id AND s.stream_key = f.stream_key AND s.ordinal = l.ordinal - f.depth
WHERE l.launch_event_id IS NOT NULL AND s.before_event_id IS NOT NULL
UNION ALL
SELECT trace_profile_id, event_id, before_event_id, before_end_ns FROM late_waits;

-- model: _call_claims
-- One row: an edge into a node of a host thread, in a window with a covering path.
-- part of: _claim_parts
-- How: edges from the preceding node or from another thread (host_claims), from GPU work that a call waited for
-- (return_claims, by call_waits and bound_calls), and from GPU work that a loop polled for (poll_claims).
WITH
-- Materialized, because DuckDB would first join each inferred wait, and each loop, with each window of its trace.
calls AS MATERIALIZED (
    SELECT
        c.window_no, w.trace_profile_id, c.event_id, c.start_ns, c.duration_ns, c.start_ns + c.duration_ns AS end_ns
    FROM _clip AS c
    JOIN _asked_windows AS w ON w.window_no = c.window_no AND w.covers_window
    WHERE c.is_operator
),
likely_waits AS (
    SELECT
        c.window_no, c.event_id, c.start_ns, c.end_ns, i.source_event_id, i.source_end_ns, h.device, i.waits_for_one,
        h.scope_no
    FROM _inferred_waits AS i
    JOIN calls AS c ON c.trace_profile_id = i.trace_profile_id AND c.event_id = i.event_id
    JOIN _gpu_history AS h ON h.scope_no = -i.trace_profile_id AND h.event_id = i.source_event_id
    WHERE i.basis = 'call_order'
),
inferred AS (
    SELECT window_no, event_id, source_event_id FROM _window_waits WHERE is_call AND NOT is_recorded
),
inferred_calls AS (
    SELECT DISTINCT window_no, event_id FROM inferred
),
going_on AS (
    SELECT DISTINCT l.window_no, l.event_id, l.device
    FROM likely_waits AS l
    JOIN inferred AS i ON i.window_no = l.window_no AND i.event_id = l.event_id
    JOIN _gpu_history AS s ON s.scope_no = l.scope_no AND s.event_id = i.source_event_id AND s.device <> l.device
    WHERE
        NOT l.waits_for_one
        AND l.source_end_ns > l.end_ns + greatest(
            threshold('call_disagrees_ns'),
            least(
                threshold('call_disagrees_most_ns'),
                (l.end_ns - l.start_ns) * threshold('call_disagrees_percent') // 100
            )
        )
),
all_waits AS (
    SELECT window_no, event_id, source_event_id, source_end_ns, source_in_window, is_inferred, FALSE AS is_launch
    FROM _window_waits
    WHERE is_call
    UNION ALL
    SELECT l.window_no, l.event_id, l.source_event_id, l.source_end_ns, k.event_id IS NOT NULL, TRUE, FALSE
    FROM likely_waits AS l
    LEFT JOIN _kernel_nodes AS k ON k.window_no = l.window_no AND k.event_id = l.source_event_id
    LEFT JOIN inferred AS i
        ON i.window_no = l.window_no AND i.event_id = l.event_id AND i.source_event_id = l.source_event_id
    LEFT JOIN inferred_calls AS f ON f.window_no = l.window_no AND f.event_id = l.event_id
    LEFT JOIN going_on AS g ON g.window_no = l.window_no AND g.event_id = l.event_id AND g.device = l.device
    WHERE i.window_no IS NULL AND (f.event_id IS NULL OR NOT l.waits_for_one) AND g.event_id IS NULL
    UNION ALL
    SELECT w.window_no, q.event_id, q.source_event_id, q.source_end_ns, k.event_id IS NOT NULL, TRUE, TRUE
    FROM _queue_waits AS q
    JOIN calls AS w ON w.trace_profile_id = q.trace_profile_id AND w.event_id = q.event_id
    LEFT JOIN _kernel_nodes AS k ON k.window_no = w.window_no AND k.event_id = q.source_event_id
),
-- By the GPU's clock, short work may begin after the call returned. Then the call waited for the preceding work on the
-- stream, unless that work was launched after the call began.
placed AS (
    SELECT
        t.window_no, t.event_id, t.source_in_window, t.is_inferred, t.is_launch, c.start_ns, c.end_ns,
        CASE WHEN k.start_ns > c.end_ns THEN l.event_id ELSE t.source_event_id END AS source_event_id,
        CASE WHEN k.start_ns > c.end_ns THEN l.start_ns ELSE k.start_ns END AS source_start_ns,
        CASE WHEN k.start_ns > c.end_ns THEN l.start_ns + l.duration_ns ELSE t.source_end_ns END AS source_end_ns,
        k.start_ns > c.end_ns AND l.launch_ts_ns >= c.start_ns AS is_launched_later
    FROM all_waits AS t
    JOIN calls AS c ON c.window_no = t.window_no AND c.event_id = t.event_id
    LEFT JOIN _kernel_nodes AS k ON k.window_no = t.window_no AND k.event_id = t.source_event_id
    LEFT JOIN _kernel_nodes AS l ON l.window_no = k.window_no AND l.event_id = k.last_event_id
),
-- One row: a call in a window with a covering path, and GPU work that it waited for or that had ended before it began.
-- How: the waits of _window_waits, likely waits by the order of calls (_inferred_waits) and, with or without cuda_sync
-- rows, _queue_waits. A call for one stream or event waited for one activity, so a likely wait is dropped if
-- _window_waits has an inferred wait of the call. A likely wait of a call for a device is also dropped if its device is
-- still busy after the call and the inferred wait is for another device. The times may contradict a wait by at most the
-- disagreement of clocks: 10 us, or 1 % of a longer call, at most 50 us. The work may run outside the window.
call_waits AS MATERIALIZED (
    SELECT
        window_no,  -- The window.
        event_id,  -- The call.
        start_ns,  -- Its start, ns.
        end_ns,  -- Its end, ns.
        source_event_id,  -- The GPU work.
        source_start_ns,  -- Start of that work, ns; NULL outside the window.
        source_end_ns,  -- Its end, ns.
        source_in_window,  -- The GPU work belongs to the window.
        source_end_ns > start_ns AS has_waited,  -- The call began while the work was still running.
        bool_and(is_inferred) AS is_inferred,  -- No cuda_sync row records the wait: inferred from calls and timing.
        bool_or(is_launch) AS is_launch  -- The call launches work into a stream whose queue is full at times.
    FROM placed
    WHERE
        source_event_id IS NOT NULL AND NOT coalesce(is_launched_later, FALSE)
        AND source_end_ns <= end_ns + greatest(
            threshold('call_disagrees_ns'),
            least(threshold('call_disagrees_most_ns'), (end_ns - start_ns) * threshold('call_disagrees_percent') // 100)
        )
        AND (source_start_ns IS NULL OR source_start_ns <= end_ns)
    GROUP BY window_no, event_id, start_ns, end_ns, source_event_id, source_start_ns, source_end_ns, source_in_window
),
ranked AS (
    SELECT
        *,
        row_number() OVER (
            PARTITION BY window_no, event_id ORDER BY source_end_ns DESC, source_in_window DESC, source_event_id
        ) AS choice
    FROM call_waits
    WHERE has_waited
),
asked AS (
    SELECT window_no, event_id, duration_ns, FALSE AS is_launch FROM _clip WHERE is_blocking
    UNION ALL
    -- A call that need not block waited for room in the queue, for the copy that it started (_inferred_waits), or for
    -- the work that a cuda_sync row states.
    SELECT w.window_no, w.event_id, w.end_ns - w.start_ns, bool_or(w.is_launch)
    FROM call_waits AS w
    JOIN _clip AS c ON c.window_no = w.window_no AND c.event_id = w.event_id AND NOT c.is_blocking
    LEFT JOIN _clip AS s ON s.window_no = w.window_no AND s.event_id = w.source_event_id
    WHERE w.is_launch OR s.launch_event_id = w.event_id OR NOT w.is_inferred AND w.has_waited
    GROUP BY w.window_no, w.event_id, w.end_ns, w.start_ns
),
bound AS (
    SELECT a.window_no, a.event_id, a.duration_ns, e.name, r.event_id IS NOT NULL AS has_waited, a.is_launch
    FROM asked AS a
    JOIN _asked_windows AS w ON w.window_no = a.window_no AND w.covers_window
    JOIN events AS e ON e.trace_id = w.trace_id AND e.event_id = a.event_id
    LEFT JOIN ranked AS r ON r.window_no = a.window_no AND r.event_id = a.event_id AND r.choice = 1
),
needs AS (
    SELECT
        window_no, name,
        coalesce(
            min(CASE WHEN NOT has_waited AND NOT is_launch THEN duration_ns END),
            CAST(avg(
                CASE
                    WHEN NOT has_waited AND is_launch AND duration_ns <= threshold('slow_launch_ns') THEN duration_ns
                END
            ) AS BIGINT)
        ) AS need_ns,
        min(CASE WHEN NOT has_waited AND NOT is_launch THEN duration_ns END) AS blocking_ns
    FROM bound
    GROUP BY window_no, name
),
least_needs AS (
    SELECT window_no, min(blocking_ns) AS need_ns FROM needs GROUP BY window_no
),
-- One row: a call that waited for GPU work, in a window with a covering path, and how much of its duration the wait
-- explains.
-- How: the call waited for the work that ended last. need_ns is the duration of the shortest call of the same name that
-- waited for nothing. If all calls of the name waited, it is the shortest such call of any name; if all calls waited, 3
-- us. A launch needs the average duration of the launches of its name that found room in the queue (at most 20 us
-- each). If the call took more than 50 us after the work had ended, that time is the call's own, and need_ns is at
-- least as long (cudaFree waits and then frees).
-- Two kinds of calls have no row. One is a call that is neither blocking nor a launch and does not wait for its own
-- copy, unless a cuda_sync row states its wait. The other is a call, except a launch, that took no longer than need_ns,
-- so the wait did not delay it.
bound_calls AS (
    SELECT
        r.window_no,  -- The window.
        r.event_id,  -- The call.
        r.event_id * 2 + 1 AS node_id,  -- End node of the call.
        r.source_event_id,  -- GPU work that it waited for.
        r.source_in_window,  -- That work belongs to the window.
        r.is_inferred,  -- No cuda_sync row records the wait.
        -- From the end of that work to the end of the call, ns.
        greatest(r.end_ns - r.source_end_ns, 0) AS remaining_ns,
        -- Duration of the call without a wait, ns.
        greatest(
            coalesce(n.need_ns, l.need_ns, threshold('call_usual_ns')),
            CASE WHEN r.end_ns - r.source_end_ns > threshold('call_own_ns') THEN r.end_ns - r.source_end_ns ELSE 0 END
        ) AS need_ns
    FROM ranked AS r
    JOIN bound AS c ON c.window_no = r.window_no AND c.event_id = r.event_id
    LEFT JOIN needs AS n ON n.window_no = c.window_no AND n.name = c.name
    LEFT JOIN least_needs AS l ON l.window_no = r.window_no
    WHERE r.choice = 1 AND (c.is_launch OR c.duration_ns > coalesce(n.need_ns, l.need_ns, 0))
),
asking AS MATERIALIZED (
    SELECT
        f.window_no, f.start_ns AS first_ns, p.last_event_id, p.source_event_id, p.source_end_ns, p.has_waited
    FROM _poll_loops AS p
    JOIN calls AS f ON f.trace_profile_id = p.trace_profile_id AND f.event_id = p.event_id
),
-- One row: a loop of calls that polled until GPU work had ended (_poll_loops), in a window with a covering path.
-- How: the last call represents the loop, because the thread continues from it once the work has ended. The earlier
-- calls are not part of the graph (_left_out).
poll_waits AS (
    SELECT
        c.window_no,  -- The window.
        c.event_id,  -- The last call.
        c.event_id * 2 AS node_id,  -- Start node of the last call.
        c.start_ns,  -- Start of the last call, ns.
        c.start_ns - min(p.first_ns) AS asked_ns,  -- Time since the first call of the loop in the window, ns.
        -- Share of asked_ns that the loop spent outside its calls, 0 to 1, estimated from the duration of the last
        -- call.
        greatest(
            1.0 - (count(*) - 1) * c.duration_ns / greatest(c.start_ns - min(p.first_ns), 1), 0.0
        ) AS pause_share,
        p.source_event_id,  -- GPU work that the loop waited for.
        k.start_ns AS source_start_ns,  -- Start of that work, ns; NULL outside the window.
        p.source_end_ns,  -- Its end, ns.
        k.event_id IS NOT NULL AS source_in_window,  -- The GPU work belongs to the window.
        p.has_waited  -- FALSE: the loop's first call found the work done.
    FROM asking AS p
    JOIN calls AS c ON c.window_no = p.window_no AND c.event_id = p.last_event_id
    LEFT JOIN _kernel_nodes AS k ON k.window_no = p.window_no AND k.event_id = p.source_event_id
    LEFT JOIN _left_out AS o ON o.window_no = c.window_no AND o.event_id = c.event_id
    WHERE
        o.event_id IS NULL AND (k.start_ns IS NULL OR k.start_ns <= c.start_ns)
        AND (p.has_waited OR p.source_end_ns <= c.start_ns)
    GROUP BY
        c.window_no, c.event_id, c.start_ns, c.duration_ns, p.source_event_id, k.start_ns, p.source_end_ns, k.event_id,
        p.has_waited
),
-- One row: an edge into a node of a host thread, in a window with a covering path.
-- How: the edges of _host_edges. If a call waited for work of the window, its own edge claims at most the call's
-- duration without a wait, and never all of the elapsed time. If a call mostly waited for work from outside the window,
-- its time counts as a wait for that work. Before the last call of a loop that polled until work had ended, the edge
-- claims only the time until the loop began.
host_claims AS (
    SELECT
        h.window_no,  -- The window.
        2 AS kind,  -- See _edges.
        h.ordinal,  -- Position in the window.
        h.src_node_id,  -- Source node.
        h.dst_node_id,  -- Destination node.
        h.edge_code,  -- Type of the edge.
        -- Part of the elapsed time that the edge claims, ns.
        CASE
            WHEN b.source_in_window THEN least(h.claim_ns, b.need_ns, greatest(h.elapsed_ns - 1, 0))
            WHEN p.source_in_window THEN greatest(h.elapsed_ns - greatest(p.asked_ns, 1), 0)
            ELSE h.claim_ns
        END AS claim_ns,
        h.attributed_event_id,  -- Event that the edge's time belongs to.
        -- A wait for GPU work from outside the window.
        coalesce(
            NOT b.source_in_window AND 2 * b.remaining_ns <= h.elapsed_ns,
            NOT p.source_in_window AND 2 * p.asked_ns >= h.elapsed_ns, FALSE
        ) AS is_earlier,
        -- A hand-off between threads, inferred from the times alone, or an inferred wait for work from outside the
        -- window.
        h.is_inferred OR coalesce(
            NOT b.source_in_window AND 2 * b.remaining_ns <= h.elapsed_ns AND b.is_inferred,
            NOT p.source_in_window AND 2 * p.asked_ns >= h.elapsed_ns, FALSE
        ) AS is_inferred,
        h.is_inferred AS yields  -- Edges that other models add into the same node replace this edge.
    FROM _host_edges AS h
    LEFT JOIN bound_calls AS b ON b.window_no = h.window_no AND b.node_id = h.dst_node_id
    LEFT JOIN poll_waits AS p ON p.window_no = h.window_no AND p.node_id = h.dst_node_id AND p.has_waited
),
returns AS (
    SELECT window_no, min(remaining_ns) AS least_ns
    FROM bound_calls
    WHERE source_in_window AND remaining_ns <= threshold('call_own_ns')
    GROUP BY window_no
),
call_returns AS (
    SELECT
        w.*,
        CASE
            WHEN
                b.event_id IS NULL AND w.is_inferred AND NOT w.is_launch
                AND w.end_ns - w.start_ns > threshold('call_own_ns')
                THEN w.end_ns - w.start_ns
            ELSE coalesce(b.remaining_ns, r.least_ns, threshold('call_return_usual_ns'))
        END AS remaining_ns, w.source_end_ns > w.end_ns AS is_late,
        coalesce(b.source_event_id = w.source_event_id, FALSE) AS has_bound,
        greatest(w.end_ns - w.source_end_ns, 0) AS passed_ns
    FROM call_waits AS w
    LEFT JOIN bound_calls AS b ON b.window_no = w.window_no AND b.event_id = w.event_id
    LEFT JOIN returns AS r ON r.window_no = w.window_no
    LEFT JOIN _left_out AS o ON o.window_no = w.window_no AND o.event_id = w.event_id
    WHERE w.source_in_window AND o.event_id IS NULL
),
-- One row: an edge from GPU work to the end of a call in a window with a covering path. The call waited for the work,
-- or the work had ended before the call began.
-- How: the call returns shortly after the work that ended last. If the return takes longer than 50 us, that time is the
-- call's own. If the call found the work done, the edge claims the shortest return of the window (2 us if the window
-- has no such return). It claims all of the time if that is the call's own, because cudaFree takes as long after a wait
-- as without one. If the clocks show that the work had not ended yet, the edge leads from the work's start, and its
-- time belongs to the work.
return_claims AS (
    SELECT
        w.window_no,  -- The window.
        5 AS kind,  -- See _edges.
        -- Position in the order of the two events.
        row_number() OVER (PARTITION BY w.window_no ORDER BY w.event_id, w.source_event_id) AS ordinal,
        w.source_event_id * 2 + CASE WHEN w.is_late THEN 0 ELSE 1 END AS src_node_id,  -- Source node.
        w.event_id * 2 + 1 AS dst_node_id,  -- Destination node.
        -- Type of the edge.
        CASE
            WHEN w.is_late OR least(w.passed_ns, w.remaining_ns) > threshold('call_own_ns')
                THEN edge_code('OPERATOR_KERNEL')
            ELSE edge_code('SYNC_DEPENDENCY')
        END AS edge_code,
        CASE
            WHEN w.is_late AND w.has_bound THEN w.end_ns - w.source_start_ns
            WHEN w.is_late THEN 0
            ELSE least(w.passed_ns, w.remaining_ns)
        END AS claim_ns,  -- Part of the elapsed time that the edge claims, ns.
        -- Event that the edge's time belongs to.
        CASE WHEN w.is_late THEN w.source_event_id ELSE w.event_id END AS attributed_event_id,
        FALSE AS is_earlier,  -- A wait for GPU work from outside the window.
        w.is_inferred,  -- A wait that no cuda_sync row records.
        FALSE AS yields  -- Edges that other models add into the same node replace this edge.
    FROM call_returns AS w
),
polling AS (
    SELECT
        window_no, event_id, node_id, source_event_id, source_start_ns, start_ns, has_waited,
        source_end_ns > start_ns AS is_late, greatest(start_ns - source_end_ns, 0) AS passed_ns,
        sum(CASE WHEN has_waited THEN pause_share ELSE 0 END) OVER (
            PARTITION BY window_no ORDER BY start_ns, event_id ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        ) AS pauses,
        CASE WHEN has_waited THEN pause_share ELSE 0 END AS pause_share,
        coalesce(
            min(CASE WHEN has_waited THEN greatest(start_ns - source_end_ns, 0) END) OVER (PARTITION BY window_no), 0
        ) AS least_ns
    FROM poll_waits
    WHERE source_in_window
),
poll_ends AS (
    SELECT *, has_waited AND NOT is_late AND floor(pauses) > floor(pauses - pause_share) AS is_pause FROM polling
),
-- One row: an edge from GPU work to the last call of a loop that polled for it, in a window with a covering path.
-- How: from the end of the work. If the call began before that end, the edge leads from the work's start, and its time
-- belongs to the work. If the loop's first call found the work done, the edge claims the shortest time that a loop of
-- the window took to see the end of its work.
-- A loop sees the end with a random delay of at most the time from one call to the next. Part of that time is the
-- call's own; the rest (pause_share) is spent between calls. So that share of a window's loops has edges of host time,
-- and the other loops have edges of the call's time.
poll_claims AS (
    SELECT
        w.window_no,  -- The window.
        5 AS kind,  -- See _edges.
        -- Position, after the edges of calls that wait themselves.
        1099511627776 + row_number() OVER (PARTITION BY w.window_no ORDER BY w.event_id) AS ordinal,
        w.source_event_id * 2 + CASE WHEN w.is_late THEN 0 ELSE 1 END AS src_node_id,  -- Source node.
        w.node_id AS dst_node_id,  -- Destination node.
        -- Type of the edge.
        CASE
            WHEN w.is_late THEN edge_code('OPERATOR_KERNEL')
            WHEN NOT w.has_waited THEN edge_code('SYNC_DEPENDENCY')
            WHEN w.is_pause THEN edge_code('HOST_GAP')
            ELSE edge_code('OPERATOR_KERNEL')
        END AS edge_code,
        -- Part of the elapsed time that the edge claims, ns.
        CASE
            WHEN NOT w.has_waited THEN least(w.passed_ns, w.least_ns)
            WHEN w.is_late THEN w.start_ns - w.source_start_ns
            ELSE w.passed_ns
        END AS claim_ns,
        -- Event that the edge's time belongs to.
        CASE WHEN w.is_late THEN w.source_event_id WHEN NOT w.is_pause THEN w.event_id END AS attributed_event_id,
        FALSE AS is_earlier,  -- A wait for GPU work from outside the window.
        TRUE AS is_inferred,  -- No cuda_sync row records the work for which a call polls.
        FALSE AS yields  -- Edges that other models add into the same node replace this edge.
    FROM poll_ends AS w
)
SELECT
    window_no,  -- The window.
    kind,  -- See _edges.
    ordinal,  -- Position among the edges of its kind.
    src_node_id,  -- Source node.
    dst_node_id,  -- Destination node.
    edge_code,  -- Type of the edge, in edge_types.
    claim_ns,  -- Part of the elapsed time that the edge claims, ns.
    attributed_event_id,  -- Event that the edge's time belongs to.
    is_earlier,  -- A wait for GPU work from outside the window.
    is_inferred,  -- A wait that no cuda_sync row records.
    yields  -- Edges that other models add into the same node replace this edge.
FROM host_claims
UNION ALL
SELECT
    window_no, kind, ordinal, src_node_id, dst_node_id, edge_code, claim_ns,
    attributed_event_id, is_earlier, is_inferred, yields
FROM return_claims
UNION ALL
SELECT
    window_no, kind, ordinal, src_node_id, dst_node_id, edge_code, claim_ns,
    attributed_event_id, is_earlier, is_inferred, yields
FROM poll_claims;
