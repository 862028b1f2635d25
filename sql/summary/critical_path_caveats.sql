-- One row: something to know before reading the critical path of a window: what was inferred, what it leaves out, what
-- the trace lacks.
-- How: counts over the window's graph and path; _path_beside has the time in which only collectives, or nothing at all,
-- ran beside the path.
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
        -- Work before all that the window launched on the stream was launched before it; this was not.
        count(*) FILTER (WHERE k.launch_event_id IS NULL AND k.start_ns > l.first_ns) AS n_lost,
        count(*) FILTER (WHERE k.launch_ts_ns > k.start_ns) AS n_before_launch,
        max(k.launch_ts_ns - k.start_ns) AS before_launch_ns
    FROM _kernel_nodes AS k
    LEFT JOIN launched AS l ON l.window_no = k.window_no AND l.stream_key = k.stream_key
    GROUP BY k.window_no
),
inferred AS (
    SELECT window_no, count(*) AS n FROM _inferred_edges GROUP BY window_no
),
-- Waits for events of which a cuda_sync row states no record or no stream, and those without a row that held work up.
unstated AS (
    SELECT
        w.window_no, count(*) AS n, count(*) FILTER (WHERE e.source_kernel_id IS NOT NULL) AS n_inferred,
        count(*) FILTER (WHERE e.evidence = 'record') AS n_with_record
    FROM windows AS w
    JOIN _recording_traces AS r ON r.trace_profile_id = w.trace_profile_id
    JOIN _event_waits AS e ON e.trace_profile_id = r.trace_profile_id
    JOIN _clip AS c ON c.window_no = w.window_no AND c.event_id = e.wait_call_event_id
    WHERE
        w.infer_waits AND e.is_best AND e.evidence IN ('record', 'stream', 'calls', 'none')
        AND (e.source_kernel_id IS NOT NULL OR e.wait_event_id <> e.wait_call_event_id)
    GROUP BY w.window_no
),
first_steps AS (
    SELECT
        trace_id, min(step) AS step, min(start_ns) AS start_ns, count(*) AS n_steps
    FROM profiler_steps
    GROUP BY trace_id
),
pathless AS (
    SELECT w.window_no, coalesce(sum(e.n_edges), 0) AS n_edges, max(r.reason) AS refused_reason
    FROM windows AS w
    LEFT JOIN paths AS p ON p.window_no = w.window_no
    LEFT JOIN _refused_windows AS r ON r.window_no = w.window_no
    LEFT JOIN _edge_counts AS e ON e.window_no = w.window_no
    WHERE p.window_no IS NULL
    GROUP BY w.window_no
),
found AS (
    SELECT
        window_no, 'no_critical_path' AS caveat, CASE WHEN n_edges > 0 THEN 'error' ELSE 'warning' END AS severity,
        n_edges AS n, CAST(NULL AS BIGINT) AS time_ns,
        CASE
            WHEN refused_reason IS NOT NULL THEN 'the profile refuses the window: ' || refused_reason
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
                THEN 'the trace has no cuda_sync events (PyTorch PR 105187), and no wait for GPU work could be inferred'
            ELSE
                'the trace has no cuda_sync events (PyTorch PR 105187): ' || CAST(i.n AS VARCHAR)
                || CASE WHEN i.n = 1 THEN ' wait for GPU work is' ELSE ' waits for GPU work are' END
                || ' inferred from calls and times'
        END
    FROM windows AS w
    JOIN work AS k ON k.window_no = w.window_no
    LEFT JOIN _recording_traces AS s ON s.trace_profile_id = w.trace_profile_id
    LEFT JOIN inferred AS i ON i.window_no = w.window_no
    WHERE s.trace_profile_id IS NULL
    UNION ALL
    SELECT
        window_no, 'unstated_waits', 'warning', n, NULL,
        CAST(n AS VARCHAR) || CASE WHEN n = 1 THEN ' wait for an event does' ELSE ' waits for events do' END
        || ' not state ' || CASE WHEN n_with_record = n THEN '' ELSE 'the record or ' END
        || 'the stream that they waited for (Kineto with CUDA 12.9 and later, Cuspy): '
        || CASE WHEN n_inferred = n THEN 'it is' ELSE CAST(n_inferred AS VARCHAR) || ' of them are' END
        || ' inferred from calls and times'
    FROM unstated
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
                ' although work was queued: the trace lacks events, or something outside the trace used the GPU'
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
    SELECT w.window_no, f.check_name, f.severity, f.n, NULL, f.detail
    FROM windows AS w
    JOIN findings AS f ON f.trace_id = w.trace_id AND f.severity <> 'info'
)
SELECT
    w.trace_id,  -- The trace.
    w.window_id,  -- The window.
    f.caveat,  -- Name of the caveat.
    f.severity,  -- info, warning or error.
    CAST(f.n AS BIGINT) AS n,  -- How many times it was found.
    TRY_CAST(f.time_ns AS BIGINT) AS time_ns,  -- Time that the caveat is about, ns; NULL where it is not about time.
    f.detail  -- What it means, as a sentence.
FROM found AS f
JOIN windows AS w ON w.window_no = f.window_no
