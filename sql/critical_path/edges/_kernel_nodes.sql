-- One row: a GPU activity of a window, with the facts that decide its incoming edges: the work before it on its stream,
-- its launch and its waits.
-- How: earlier work from lag over the stream in time order, waits from _window_waits, queue lengths from _queue (HTA
-- 2.8.7). Work outside the window (earlier work on the stream from _gpu_history, sources of waits) is not a node but
-- still counts, because work on a busy stream did not wait for its launch.
-- With overlap_counts_once, the work before an activity is the work on its stream that began earlier and ended last, or
-- the work in its graph that ended even later.
WITH spread AS (
    SELECT c.window_no, c.launch_event_id, w.trace_id
    FROM _clip AS c
    JOIN _asked_windows AS w ON w.window_no = c.window_no
    JOIN _profiles AS p ON p.trace_profile_id = w.trace_profile_id
    WHERE c.side = 'gpu' AND c.launch_event_id IS NOT NULL AND NOT p.one_kernel_per_launch
    GROUP BY c.window_no, c.launch_event_id, w.trace_id
    HAVING min(c.stream_key) <> max(c.stream_key)
),
graph_work AS (
    SELECT s.trace_id, c.window_no, c.launch_event_id, c.event_id, c.start_ns, c.start_ns + c.duration_ns AS end_ns
    FROM _clip AS c
    JOIN spread AS s ON s.window_no = c.window_no AND s.launch_event_id = c.launch_event_id
    WHERE c.side = 'gpu'
),
marks AS (
    SELECT
        window_no, launch_event_id, start_ns AS at_ns, 1 AS turn, event_id, CAST(NULL AS BIGINT) AS ended_event_id,
        CAST(NULL AS BIGINT) AS ended_ns
    FROM graph_work
    UNION ALL
    SELECT window_no, launch_event_id, end_ns, 0, event_id, event_id, end_ns
    FROM graph_work
    WHERE end_ns > start_ns
),
walked AS (
    SELECT
        window_no, event_id, turn,
        last_value(ended_event_id IGNORE NULLS) OVER before AS released_by_event_id,
        last_value(ended_ns IGNORE NULLS) OVER before AS released_ns
    FROM marks
    WINDOW before AS (
        PARTITION BY window_no, launch_event_id ORDER BY at_ns, turn, event_id
        ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    )
),
known AS (
    SELECT
        w.window_no, w.event_id, p.event_id AS released_by_event_id, p.end_ns AS released_ns,
        row_number() OVER (
            PARTITION BY w.window_no, w.event_id ORDER BY p.end_ns DESC NULLS LAST, p.event_id DESC
        ) AS choice
    FROM graph_work AS w
    JOIN _graph_dependencies AS d ON d.trace_id = w.trace_id AND d.event_id = w.event_id
    LEFT JOIN graph_work AS p
        ON p.window_no = w.window_no AND p.launch_event_id = w.launch_event_id AND p.event_id = d.source_event_id
            AND p.end_ns <= w.start_ns
),
chosen AS (
    SELECT window_no, event_id, released_by_event_id, released_ns FROM known WHERE choice = 1
    UNION ALL
    SELECT g.window_no, g.event_id, g.released_by_event_id, g.released_ns
    FROM walked AS g
    LEFT JOIN known AS k ON k.window_no = g.window_no AND k.event_id = g.event_id AND k.choice = 1
    WHERE g.turn = 1 AND k.event_id IS NULL
),
-- One row: a GPU activity of a CUDA or HIP graph that ran on several streams, and the work of the same launch that
-- ended last before it began.
-- How: the latest end among the work that it depends on (_graph_dependencies). If the trace does not record the graph's
-- edges, the last work of the launch that ended before it began is assumed to have released it. To find that work, sort
-- the starts and ends of a launch's work by time, and take the last end before each start.
graph_order AS (
    SELECT
        window_no,  -- The window.
        event_id,  -- GPU work of the graph.
        -- Work of the same launch, on any stream, that ended last before it began; chosen among its dependencies if
        -- these are known.
        released_by_event_id,
        released_ns  -- The end of that work, ns.
    FROM chosen
    WHERE released_by_event_id IS NOT NULL
),
windows AS (
    SELECT
        w.window_no, w.trace_profile_id,
        CASE WHEN p.whole_trace_history THEN -w.trace_profile_id ELSE w.window_no END AS scope_no,
        p.launch_delay_needs_queue, p.one_wait_per_kernel, p.kernel_gap_limit_ns, p.zero_weight_launch,
        p.overlap_counts_once, p.covers_window
    FROM _asked_windows AS w
    JOIN _profiles AS p ON p.trace_profile_id = w.trace_profile_id
),
in_order AS (
    SELECT
        c.window_no, c.event_id, c.device, c.stream_key, c.start_ns, c.duration_ns, c.launch_event_id, c.launch_ts_ns,
        c.launch_in_window,
        row_number() OVER (PARTITION BY c.window_no ORDER BY c.start_ns, c.event_id) AS ordinal,
        lag(c.event_id) OVER stream AS previous_event_id,
        lag(c.start_ns + c.duration_ns) OVER stream AS previous_end_ns,
        max(c.start_ns + c.duration_ns) OVER (stream ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS reached_ns
    FROM _clip AS c
    WHERE c.side = 'gpu'
    WINDOW stream AS (PARTITION BY c.window_no, c.stream_key ORDER BY c.start_ns, c.event_id)
),
reaching AS (
    SELECT
        *,
        last_value(
            CASE WHEN reached_ns IS NULL OR start_ns + duration_ns >= reached_ns THEN event_id END IGNORE NULLS
        ) OVER (
            PARTITION BY window_no, stream_key
            ORDER BY start_ns, event_id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS reaching_event_id,
        last_value(
            CASE WHEN reached_ns IS NULL OR start_ns + duration_ns >= reached_ns THEN start_ns END IGNORE NULLS
        ) OVER (
            PARTITION BY window_no, stream_key
            ORDER BY start_ns, event_id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS reaching_ts_ns
    FROM in_order
),
work AS (
    SELECT
        r.*, w.trace_profile_id, w.launch_delay_needs_queue, w.one_wait_per_kernel, w.kernel_gap_limit_ns,
        w.zero_weight_launch, w.overlap_counts_once, w.covers_window,
        CASE
            WHEN NOT w.overlap_counts_once THEN r.previous_event_id
            WHEN g.released_ns > r.reached_ns OR r.reached_ns IS NULL THEN g.released_by_event_id
            ELSE r.reaching_event_id
        END AS last_event_id,
        CASE
            WHEN NOT w.overlap_counts_once THEN r.previous_end_ns
            WHEN g.released_ns > r.reached_ns OR r.reached_ns IS NULL THEN g.released_ns
            ELSE r.reached_ns
        END AS last_end_ns
    FROM reaching AS r
    JOIN windows AS w ON w.window_no = r.window_no
    LEFT JOIN graph_order AS g ON g.window_no = r.window_no AND g.event_id = r.event_id
),
latest AS (
    SELECT
        window_no, event_id,
        max(source_end_ns) AS any_source_end_ns,
        max(source_end_ns) FILTER (WHERE source_in_window AND NOT is_same_stream) AS other_source_end_ns,
        max(source_end_ns) FILTER (WHERE NOT source_in_window AND NOT is_inferred) AS recorded_outside_end_ns,
        max(source_end_ns) FILTER (WHERE NOT source_in_window AND is_inferred) AS inferred_outside_end_ns,
        bool_or(is_inferred AND source_in_window) AS is_inferred
    FROM _window_waits
    WHERE NOT is_call
    GROUP BY window_no, event_id
),
-- Work outside the window: earlier work on its stream, or awaited work.
outside AS (
    SELECT
        k.window_no, k.event_id, l.any_source_end_ns, l.other_source_end_ns, l.is_inferred,
        greatest(
            CASE WHEN k.reached_ns IS NULL OR h.busy_until_ns > k.reached_ns THEN h.busy_until_ns END,
            l.recorded_outside_end_ns
        ) AS known_outside_end_ns,
        greatest(known_outside_end_ns, l.inferred_outside_end_ns) AS outside_end_ns
    FROM in_order AS k
    JOIN windows AS w ON w.window_no = k.window_no
    LEFT JOIN _gpu_history AS h ON h.scope_no = w.scope_no AND h.event_id = k.event_id
    LEFT JOIN latest AS l ON l.window_no = k.window_no AND l.event_id = k.event_id
),
queue AS (
    SELECT q.trace_profile_id, q.event_id, q.change, q.queue_length
    FROM _queue AS q
    JOIN _profiles AS p ON p.trace_profile_id = q.trace_profile_id
    WHERE p.launch_delay_needs_queue
),
at_start AS (
    SELECT trace_profile_id, event_id, queue_length FROM queue WHERE change = -1
),
at_launch AS (
    SELECT
        trace_profile_id, event_id, max(queue_length) AS queue_length
    FROM queue
    WHERE change = 1
    GROUP BY trace_profile_id, event_id
)
SELECT
    k.window_no,  -- The window.
    k.ordinal,  -- Position in time order.
    k.event_id,  -- The GPU work.
    k.device,  -- Its device.
    k.stream_key,  -- Its stream as the profile sees it.
    k.start_ns,  -- Start, ns.
    k.duration_ns,  -- Duration, ns.
    k.last_event_id,  -- Work before it on its stream or in its graph.
    k.last_end_ns,  -- End of that work, ns.
    -- Start of that work, ns, if this work overlaps it and so follows its start; else NULL.
    CASE WHEN k.overlap_counts_once AND k.last_end_ns > k.start_ns THEN k.reaching_ts_ns END AS overlapped_ts_ns,
    CASE
        WHEN k.overlap_counts_once AND k.reaching_event_id <> k.last_event_id THEN k.reaching_event_id
        WHEN k.overlap_counts_once AND k.previous_event_id <> k.last_event_id THEN k.previous_event_id
        WHEN o.is_inferred THEN k.last_event_id
    END AS ordered_after_event_id,  -- Other work on its stream that it follows but did not wait for.
    -- The activity overlaps the work that began before it on its stream.
    k.previous_end_ns > k.start_ns AS overlaps_previous,
    k.launch_event_id,  -- The call that launched it.
    k.launch_ts_ns,  -- Start of that call, ns.
    k.launch_in_window,  -- The launch call is a node of the window.
    k.zero_weight_launch,  -- The profile adds launch edges of weight 0.
    k.covers_window,  -- The path covers the window.
    coalesce(
        k.launch_in_window
        AND (NOT k.launch_delay_needs_queue OR ql.queue_length = 1 AND qk.queue_length = 0)
        AND (k.last_end_ns IS NULL OR k.last_end_ns < k.launch_ts_ns)
        AND (o.any_source_end_ns IS NULL OR o.any_source_end_ns < k.launch_ts_ns)
        AND (o.outside_end_ns IS NULL OR o.outside_end_ns < k.launch_ts_ns),
        FALSE
    ) AS waited_for_launch,  -- The activity's launch determined its start.
    coalesce(
        k.last_end_ns IS NOT NULL
        AND k.start_ns - k.last_end_ns < k.kernel_gap_limit_ns
        AND CASE
            WHEN k.one_wait_per_kernel THEN o.any_source_end_ns IS NULL OR o.any_source_end_ns < k.last_end_ns
            ELSE o.other_source_end_ns IS NULL OR o.other_source_end_ns < k.last_end_ns
        END,
        FALSE
    ) AS may_wait_for_last,  -- The activity may have waited for the work before it.
    -- Last end of work from outside the window that preceded it on its stream or that it waited for, ns.
    o.outside_end_ns,
    -- Only an inferred wait shows that work from outside the window.
    coalesce(o.outside_end_ns > o.known_outside_end_ns, o.outside_end_ns IS NOT NULL) AS outside_is_inferred,
    -- Work in the window on another stream had to end first.
    o.other_source_end_ns IS NOT NULL AS waits_on_other_stream,
    -- The activity was launched behind work from outside the window, and follows no work of the window on its stream.
    coalesce(
        k.launch_in_window AND k.last_end_ns IS NULL AND o.outside_end_ns >= k.launch_ts_ns
        AND (o.other_source_end_ns IS NULL OR o.other_source_end_ns < o.outside_end_ns),
        FALSE
    ) AS held_up_since_launch,
    -- Work from outside the window ran for at least half of the time since the launch, or since the end of the work
    -- before it. Half is the limit, because a gap gets the name of the work that fills most of it.
    coalesce(
        o.outside_end_ns IS NOT NULL
        AND 2 * (
            least(o.outside_end_ns, k.start_ns) - coalesce(k.last_end_ns, k.launch_ts_ns)
        ) >= k.start_ns - coalesce(k.last_end_ns, k.launch_ts_ns),
        FALSE
    ) AS waits_for_earlier_work
FROM work AS k
JOIN outside AS o ON o.window_no = k.window_no AND o.event_id = k.event_id
LEFT JOIN at_start AS qk ON qk.trace_profile_id = k.trace_profile_id AND qk.event_id = k.event_id
LEFT JOIN at_launch AS ql ON ql.trace_profile_id = k.trace_profile_id AND ql.event_id = k.launch_event_id
