-- model: _edge_counts
-- One row: an edge type in the graph of a window.
-- How: a separate table, computed concurrently with the longest path, so that _edges can be dropped afterwards.
SELECT
    window_no,  -- The window.
    edge_code,  -- Type of the edge, in edge_types.
    count(*) AS n_edges,  -- Number of edges of that type.
    sum(weight_ns) AS weight_ns,  -- Sum of their weights as measured, ns.
    sum(path_weight_ns) AS path_weight_ns  -- Sum of their weights as used on the path, ns.
FROM _edges
GROUP BY window_no, edge_code;

-- model: _only_communication
-- One row: an interval of a trace in which a device ran communication and no computation.
-- How: running sums over starts and ends of both on each device. Overlapping intervals of several devices count once.
-- Only computation around communication is read, so a trace without collectives costs nothing.
WITH communication AS (
    SELECT
        e.trace_id, coalesce(e.device, TRY_CAST(e.pid AS BIGINT), 0) AS device, e.start_ns, e.end_ns
    FROM events AS e
    JOIN category_sides AS s ON s.cat = e.cat AND s.side = 'gpu'
    JOIN _kernel_class AS k
        ON k.cat = e.cat AND k.name = e.name AND k.profile = 'default' AND k.class = 'COMMUNICATION'
    WHERE e.duration_ns > 0 AND e.start_ns IS NOT NULL
),
reaches AS (
    SELECT trace_id, device, min(start_ns) AS start_ns, max(end_ns) AS end_ns
    FROM communication
    GROUP BY trace_id, device
),
computation AS (
    SELECT r.trace_id, r.device, e.start_ns, e.end_ns
    FROM events AS e
    JOIN category_sides AS s ON s.cat = e.cat AND s.side = 'gpu'
    JOIN _kernel_class AS k
        ON k.cat = e.cat AND k.name IS NOT DISTINCT FROM e.name AND k.profile = 'default'
    JOIN class_kinds AS n ON n.class = k.class AND n.counts_as = 'COMPUTATION'
    JOIN reaches AS r
        ON r.trace_id = e.trace_id AND r.device = coalesce(e.device, TRY_CAST(e.pid AS BIGINT), 0)
            AND r.start_ns < e.end_ns AND r.end_ns > e.start_ns
    WHERE e.duration_ns > 0 AND e.start_ns IS NOT NULL
),
marks AS (
    SELECT trace_id, device, start_ns AS at_ns, 1 AS communicating, 0 AS computing FROM communication
    UNION ALL
    SELECT trace_id, device, end_ns, -1, 0 FROM communication
    UNION ALL
    SELECT trace_id, device, start_ns, 0, 1 FROM computation
    UNION ALL
    SELECT trace_id, device, end_ns, 0, -1 FROM computation
),
-- The order of marks at equal times does not matter, because no time passes between them.
swept AS (
    SELECT
        trace_id, at_ns AS start_ns, lead(at_ns) OVER in_time AS end_ns,
        sum(communicating) OVER (in_time ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS n_communicating,
        sum(computing) OVER (in_time ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS n_computing
    FROM marks
    WINDOW in_time AS (PARTITION BY trace_id, device ORDER BY at_ns)
),
reached AS (
    SELECT
        trace_id, start_ns, end_ns,
        max(end_ns) OVER (
            PARTITION BY trace_id ORDER BY start_ns, end_ns ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS reached_ns
    FROM swept
    WHERE n_communicating > 0 AND n_computing = 0 AND end_ns > start_ns
)
SELECT
    trace_id,  -- The trace.
    greatest(start_ns, coalesce(reached_ns, start_ns)) AS start_ns,  -- Start of the interval, ns.
    end_ns  -- End of the interval, ns.
FROM reached
WHERE reached_ns IS NULL OR end_ns > reached_ns;

-- model: _path_beside
-- One row: a window whose path has host time or delays, with the part in which the GPU only communicated, and the part
-- of long gaps in which the GPU was idle.
-- How: the path's host time and delays are intervals that do not overlap. The work in an interval is the accumulated
-- run time at its end, minus that at its start. A single pass over the ends of all intervals and all work computes
-- both. A trace without communication, or a path without long gaps, costs nothing.
WITH asked AS (
    SELECT w.window_no, w.trace_id
    FROM critical_path_windows AS w
    WHERE w.trace_id IN (SELECT c.trace_id FROM _only_communication AS c)
),
kinds AS (
    SELECT edge_code, is_gap, bound_by FROM edge_types
),
-- Twice the window, plus 1 for the idle time in gaps. trace_id is joined before events, because DuckDB otherwise
-- compares each event with all windows of its trace.
delays AS (
    SELECT b.window_no * 2 AS question, w.trace_id, b.path_weight_ns, b.dst_node_id
    FROM _path_bounds AS b
    JOIN kinds AS t ON t.edge_code = b.edge_code
    JOIN asked AS w ON w.window_no = b.window_no
    WHERE b.path_weight_ns > 0 AND (b.bound_by IN ('cpu_bound', 'host_gap') OR t.is_gap AND b.bound_by = t.bound_by)
    UNION ALL
    SELECT b.window_no * 2 + 1, w.trace_id, b.path_weight_ns, b.dst_node_id
    FROM _path_bounds AS b
    JOIN kinds AS t ON t.edge_code = b.edge_code
    JOIN critical_path_windows AS w ON w.window_no = b.window_no
    WHERE
        b.path_weight_ns > threshold('idle_gap_ns')
        AND t.is_gap AND (b.bound_by = 'cpu_bound' OR b.bound_by = t.bound_by)
),
placed AS (
    SELECT
        d.question,
        e.start_ns + CASE WHEN d.dst_node_id % 2 = 1 THEN e.duration_ns ELSE 0 END - d.path_weight_ns AS start_ns,
        e.start_ns + CASE WHEN d.dst_node_id % 2 = 1 THEN e.duration_ns ELSE 0 END AS end_ns
    FROM delays AS d
    JOIN events AS e ON e.trace_id = d.trace_id AND e.event_id = d.dst_node_id // 2
),
reached AS (
    SELECT
        question, start_ns, end_ns,
        max(end_ns) OVER (
            PARTITION BY question ORDER BY start_ns ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS reached_ns
    FROM placed
),
-- One interval usually begins where another ends, and those two ends cancel out. So three kinds of ends remain: the
-- start of each interval that begins after all earlier intervals have ended, the end of the interval before it, and the
-- last end.
ends AS (
    SELECT question, start_ns AS at_ns, -1 AS sign
    FROM reached
    WHERE reached_ns IS NULL OR start_ns > reached_ns
    UNION ALL
    SELECT question, reached_ns, 1
    FROM reached
    WHERE start_ns > reached_ns
    UNION ALL
    SELECT question, max(end_ns), 1 FROM placed GROUP BY question
),
asking AS (
    SELECT question, min(start_ns) AS start_ns, max(end_ns) AS end_ns
    FROM placed
    WHERE question % 2 = 1
    GROUP BY question
),
gaps AS (
    SELECT w.trace_id, min(a.start_ns) AS start_ns, max(a.end_ns) AS end_ns
    FROM asking AS a
    JOIN critical_path_windows AS w ON w.window_no = a.question // 2
    GROUP BY w.trace_id
),
work AS (
    SELECT
        g.trace_id, e.start_ns, e.end_ns,
        max(e.end_ns) OVER (
            PARTITION BY g.trace_id ORDER BY e.start_ns ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS reached_ns
    FROM events AS e
    JOIN category_sides AS s ON s.cat = e.cat AND s.side = 'gpu'
    JOIN _kernel_class AS k
        ON k.cat = e.cat AND k.name IS NOT DISTINCT FROM e.name AND k.profile = 'default'
    JOIN class_kinds AS n ON n.class = k.class AND n.counts_as IN ('COMMUNICATION', 'COMPUTATION', 'MEMORY')
    JOIN gaps AS g ON g.trace_id = e.trace_id AND g.start_ns < e.end_ns AND g.end_ns > e.start_ns
    WHERE e.duration_ns > 0
),
stretches AS (
    SELECT trace_id, 0 AS is_any, start_ns, end_ns FROM _only_communication
    UNION ALL
    SELECT trace_id, 1, greatest(start_ns, coalesce(reached_ns, start_ns)), end_ns
    FROM work
    WHERE reached_ns IS NULL OR end_ns > reached_ns
),
marks AS (
    SELECT trace_id, is_any, start_ns AS at_ns, 1 AS running, CAST(NULL AS BIGINT) AS window_no, 0 AS sign
    FROM stretches
    UNION ALL
    SELECT trace_id, is_any, end_ns, -1, NULL, 0 FROM stretches
    UNION ALL
    SELECT w.trace_id, e.question - w.window_no * 2, e.at_ns, 0, w.window_no, e.sign
    FROM ends AS e
    JOIN critical_path_windows AS w ON w.window_no = e.question // 2
),
-- By a time t, work has run for the sum of the ends before t, minus the starts before t, plus t for each activity still
-- running. The order of marks at equal times does not matter.
swept AS (
    SELECT
        window_no, is_any, at_ns, sign,
        sum(running) OVER in_time * at_ns - sum(running * at_ns) OVER in_time AS run_ns
    FROM marks
    WINDOW in_time AS (
        PARTITION BY trace_id, is_any ORDER BY at_ns ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    )
)
SELECT
    window_no,  -- The window.
    -- Time of the path that counts as host time or overhead while the GPU only communicated, ns.
    sum(CASE WHEN is_any = 0 THEN sign * run_ns ELSE 0 END) AS communicating_ns,
    -- Time of the path's gaps over 1 ms without GPU work, ns.
    sum(CASE WHEN is_any = 1 THEN sign * (at_ns - run_ns) ELSE 0 END) AS idle_ns
FROM swept
WHERE window_no IS NOT NULL
GROUP BY window_no;

-- model: critical_path_caveats
-- One row: a caveat about the critical path of a window: inferred events, time that the path excludes, or data missing
-- from the trace.
-- How: counts over the window's graph and path. _path_beside has the time in which only collectives, or no work at all,
-- ran concurrently with the path.
-- check: unique(trace_id, window_id, caveat, detail)
WITH windows AS (
    SELECT
        w.window_no, w.trace_id, w.window_id, w.trace_profile_id, w.annotation, w.start_ns, w.end_ns,
        w.path_end_ns - w.path_start_ns AS span_ns, w.covers_window, p.infer_waits
    FROM critical_path_windows AS w
    JOIN _profiles AS p ON p.trace_profile_id = w.trace_profile_id
),
paths AS (
    SELECT
        window_no, sum(duration_ns) AS length_ns, count(*) FILTER (WHERE is_inferred) AS n_inferred,
        count(*) FILTER (WHERE waits_for_earlier_work AND path_weight_ns > 0) AS n_earlier,
        sum(CASE WHEN waits_for_earlier_work THEN path_weight_ns ELSE 0 END) AS earlier_ns
    FROM _path_bounds
    GROUP BY window_no
),
launched AS (
    SELECT window_no, stream_key, min(start_ns) AS first_ns
    FROM _kernel_nodes
    WHERE launch_event_id IS NOT NULL
    GROUP BY window_no, stream_key
),
work AS (
    SELECT
        k.window_no, count(*) AS n, max(k.start_ns + k.duration_ns) AS end_ns,
        count(*) FILTER (WHERE k.launch_event_id IS NULL) AS n_unlaunched,
        -- Work before the first launched work of the stream was launched before the window. This work is not earlier
        -- work.
        count(*) FILTER (WHERE k.launch_event_id IS NULL AND k.start_ns > l.first_ns) AS n_lost,
        count(*) FILTER (WHERE k.launch_ts_ns > k.start_ns) AS n_before_launch,
        max(k.launch_ts_ns - k.start_ns) AS before_launch_ns
    FROM _kernel_nodes AS k
    LEFT JOIN launched AS l ON l.window_no = k.window_no AND l.stream_key = k.stream_key
    GROUP BY k.window_no
),
inferred AS (
    SELECT window_no, count(*) AS n FROM _window_waits WHERE NOT is_recorded GROUP BY window_no
),
first_steps AS (
    SELECT
        trace_id, min(step) AS step, min(start_ns) AS start_ns, count(*) AS n_steps
    FROM profiler_steps
    GROUP BY trace_id
),
pathless AS (
    SELECT
        w.window_no, coalesce(sum(e.n_edges), 0) AS n_edges, max(r.reason) AS refused_reason,
        coalesce(sum(e.path_weight_ns), 0) = 0 AS takes_no_time
    FROM windows AS w
    LEFT JOIN paths AS p ON p.window_no = w.window_no
    LEFT JOIN _refused_windows AS r ON r.window_no = w.window_no
    LEFT JOIN _edge_counts AS e ON e.window_no = w.window_no
    WHERE p.window_no IS NULL
    GROUP BY w.window_no
),
found AS (
    SELECT
        window_no, 'no_critical_path' AS caveat,
        CASE WHEN n_edges > 0 AND NOT takes_no_time THEN 'error' ELSE 'warning' END AS severity,
        n_edges AS n, CAST(NULL AS BIGINT) AS time_ns,
        CASE
            WHEN refused_reason IS NOT NULL THEN 'the profile refuses the window: ' || refused_reason
            WHEN n_edges > 0 AND takes_no_time THEN 'all of its events have length 0'
            WHEN n_edges > 0 THEN 'the graph of the window has a cycle'
            ELSE 'the window has no operator and no GPU work'
        END AS detail
    FROM pathless
    UNION ALL
    SELECT
        w.window_no, 'no_sync_events', 'warning', coalesce(i.n, 0), NULL,
        CASE
            WHEN NOT w.infer_waits
                THEN
                'the trace has no cuda_sync events (PyTorch PR 105187): what streams and blocking calls '
                || 'waited for is unknown'
            WHEN i.n IS NULL
                THEN
                'the trace has no cuda_sync events (PyTorch PR 105187), and no wait for GPU work by a stream or a '
                || 'blocking call could be inferred'
            ELSE
                'the trace has no cuda_sync events (PyTorch PR 105187): ' || CAST(i.n AS VARCHAR)
                || CASE WHEN i.n = 1 THEN ' wait for GPU work is' ELSE ' waits for GPU work are' END
                || ' inferred from calls and times'
        END
    FROM windows AS w
    JOIN work AS k ON k.window_no = w.window_no
    JOIN _asked_windows AS a ON a.window_no = w.window_no AND NOT a.records_waits
    LEFT JOIN inferred AS i ON i.window_no = w.window_no
    UNION ALL
    SELECT
        window_no, 'unstated_waits', 'warning', n_waits, NULL,
        CAST(n_waits AS VARCHAR) || CASE WHEN n_waits = 1 THEN ' wait for an event does' ELSE ' waits for events do' END
        || ' not state ' || CASE WHEN n_with_record = n_waits THEN '' ELSE 'the record or ' END
        || 'the stream that they waited for (Kineto with CUDA 12.9 and later, Cuspy): '
        || CASE WHEN n_inferred = n_waits THEN 'it is' ELSE CAST(n_inferred AS VARCHAR) || ' of them are' END
        || ' inferred from calls and times'
    FROM _unstated_waits
    UNION ALL
    SELECT
        window_no, 'inferred_waits', 'info', n_inferred, NULL,
        CAST(n_inferred AS VARCHAR) || ' of the inferred waits ' || CASE WHEN n_inferred = 1 THEN 'is' ELSE 'are' END
        || ' on the path'
    FROM paths
    WHERE n_inferred > 0
    UNION ALL
    SELECT
        w.window_no, 'coverage', CASE
            WHEN 100 * p.length_ns < threshold('coverage_warning_percent') * w.span_ns THEN 'warning' ELSE 'info'
        END, 1,
        w.span_ns - p.length_ns,
        'the path covers ' || CAST(round(100.0 * p.length_ns / w.span_ns, 1) AS VARCHAR)
        || ' % of the window: the rest is host time outside operators, or threads that are not connected to the path'
    FROM windows AS w
    JOIN paths AS p ON p.window_no = w.window_no
    WHERE 100 * p.length_ns < threshold('coverage_percent') * w.span_ns
    UNION ALL
    SELECT
        p.window_no, 'earlier_work', 'info', p.n_earlier, p.earlier_ns,
        CAST(round(p.earlier_ns / 1000000.0, 2) AS VARCHAR)
        || ' ms of the path wait for GPU work that was launched before the window'
    FROM paths AS p
    WHERE p.earlier_ns > 0
    UNION ALL
    SELECT
        w.window_no, 'runs_past_window', 'info', 1, k.end_ns - w.end_ns,
        'GPU work that was launched in the window ends ' || CAST(round((k.end_ns - w.end_ns) / 1000000.0, 2) AS VARCHAR)
        || ' ms after it' || CASE
            WHEN w.covers_window THEN ', and so does its path' ELSE ': the path may be longer than the window'
        END
    FROM windows AS w
    JOIN work AS k ON k.window_no = w.window_no
    WHERE 100 * (k.end_ns - w.end_ns) > threshold('past_window_percent') * (w.end_ns - w.start_ns)
    UNION ALL
    SELECT
        w.window_no, 'first_step', CASE WHEN w.annotation <> '' THEN 'warning' ELSE 'info' END, 1, NULL,
        'ProfilerStep#' || CAST(f.step AS VARCHAR)
        || ' is the first profiled step: its launches may begin before the trace, and it often allocates memory'
    FROM windows AS w
    JOIN first_steps AS f ON f.trace_id = w.trace_id AND f.start_ns BETWEEN w.start_ns AND w.end_ns
    UNION ALL
    SELECT
        s.window_no, 'only_communication',
        CASE
            WHEN 100 * s.communicating_ns > threshold('beside_warning_percent') * p.length_ns THEN 'warning' ELSE 'info'
        END, 1, s.communicating_ns,
        'during ' || CAST(round(s.communicating_ns / 1000000.0, 2) AS VARCHAR)
        || ' ms that the path counts as host time or overhead, the GPU only ran communication'
    FROM _path_beside AS s
    JOIN paths AS p ON p.window_no = s.window_no
    WHERE 100 * s.communicating_ns > threshold('beside_percent') * p.length_ns
    UNION ALL
    SELECT
        s.window_no, 'idle_gaps',
        CASE WHEN 100 * s.idle_ns > threshold('beside_warning_percent') * p.length_ns THEN 'warning' ELSE 'info' END,
        1, s.idle_ns,
        CAST(round(s.idle_ns / 1000000.0, 2) AS VARCHAR)
        || ' ms of the path are gaps over ' || CAST(threshold('idle_gap_ns') // 1000000 AS VARCHAR)
        || ' ms in which nothing ran on the GPU' || CASE
            WHEN k.n_unlaunched = k.n THEN ': the trace has no launches, so nothing tells what it waited for'
            ELSE
                ' although work was queued: events are missing from the trace, '
                || 'or something outside the trace used the GPU'
        END
    FROM _path_beside AS s
    JOIN paths AS p ON p.window_no = s.window_no
    LEFT JOIN work AS k ON k.window_no = s.window_no
    WHERE 100 * s.idle_ns > threshold('beside_percent') * p.length_ns
    UNION ALL
    SELECT
        window_no, 'unlaunched_work', 'warning', n_unlaunched, NULL,
        CAST(n_unlaunched AS VARCHAR)
        || ' pieces of GPU work in the window have no launch in the trace: they depend only on their stream'
        || CASE
            WHEN n_lost > 0
                THEN '; ' || CAST(n_lost AS VARCHAR)
                || ' of them ran after work that was launched in the window, so the trace lost their launches, and '
                || 'less host time may save more than is said'
            ELSE ''
        END
    FROM work
    WHERE n_unlaunched > 0
    UNION ALL
    SELECT
        window_no, 'work_before_launch', 'warning', n_before_launch, before_launch_ns,
        CAST(n_before_launch AS VARCHAR) || ' pieces of GPU work start before the call that launched them, at worst by '
        || CAST(before_launch_ns AS VARCHAR) || ' ns: the clocks of CPU and GPU disagree'
    FROM work
    WHERE n_before_launch > 0
    UNION ALL
    SELECT
        e.window_no, 'not_retimed', 'info', sum(e.n_edges), NULL,
        'the graph has ' || CAST(sum(e.n_edges) AS VARCHAR) || ' edges, more than '
        || CAST(threshold('retimed_edges') AS VARCHAR)
        || ': what would help, and what the profiler cost, was not computed'
    FROM _edge_counts AS e
    JOIN windows AS w ON w.window_no = e.window_no AND w.covers_window
    GROUP BY e.window_no
    HAVING sum(e.n_edges) > threshold('retimed_edges')
    UNION ALL
    SELECT w.window_no, f.check_name, f.severity, f.n, NULL, f.detail
    FROM windows AS w
    JOIN findings AS f ON f.trace_id = w.trace_id AND f.severity <> 'info'
)
SELECT
    w.trace_id,  -- The trace.
    w.window_id,  -- The window.
    f.caveat,  -- Name of the caveat.
    f.severity,  -- info, warning or error.
    CAST(f.n AS BIGINT) AS n,  -- Number of occurrences.
    -- Time that the caveat affects, ns; NULL if the caveat is not about time.
    TRY_CAST(f.time_ns AS BIGINT) AS time_ns,
    f.detail  -- Meaning of the caveat, as text.
FROM found AS f
JOIN windows AS w ON w.window_no = f.window_no;
