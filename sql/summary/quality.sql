-- One row: a finding about a trace: data that was repaired or dropped, or is unmatched, negative or missing.
-- How: the findings of ingestion, and counting checks over the models. A check that finds nothing has no row.
-- check: unique(trace_id, check_name, detail)
WITH work AS (
    SELECT
        trace_id, count(*) AS n, count(*) FILTER (WHERE launch_event_id IS NULL) AS n_unlaunched
    FROM kernels
    GROUP BY trace_id
),
graphs AS (
    SELECT
        k.trace_id,
        count(*) FILTER (WHERE k.graph_node IS NOT NULL OR contains(l.name, 'GraphLaunch')) AS n,
        round(
            100
            * sum(CASE WHEN k.graph_node IS NOT NULL OR contains(l.name, 'GraphLaunch') THEN k.duration_ns ELSE 0 END)
            / nullif(sum(k.duration_ns), 0)
        ) AS percent
    FROM kernels AS k
    LEFT JOIN events AS l ON l.trace_id = k.trace_id AND l.event_id = k.launch_event_id
    GROUP BY k.trace_id
),
per_trace AS (
    SELECT
        t.trace_id, t.rank, coalesce(w.n, 0) AS n_work, coalesce(w.n_unlaunched, 0) AS n_unlaunched,
        count(e.event_id) FILTER (WHERE e.cat = 'cuda_sync') AS n_syncs,
        count(e.event_id) FILTER (WHERE e.duration_ns = 0) AS n_zero,
        count(e.event_id) FILTER (WHERE e.duration_ns < 0) AS n_negative,
        count(e.event_id) FILTER (WHERE e.duration_ns IS NOT NULL AND e.cat IS NULL) AS n_without_category,
        count(e.event_id) FILTER (
            WHERE e.cat IS NOT NULL AND coalesce(s.side, 'cpu') = 'cpu' AND (e.pid IS NULL OR e.tid IS NULL)
        ) AS n_without_thread
    FROM traces AS t
    LEFT JOIN work AS w ON w.trace_id = t.trace_id
    LEFT JOIN events AS e ON e.trace_id = t.trace_id AND e.duration_ns IS NOT NULL
    LEFT JOIN category_sides AS s ON s.cat = e.cat
    GROUP BY t.trace_id, t.rank, w.n, w.n_unlaunched
),
kernel_gaps AS (
    SELECT
        w.trace_id,
        count(*) FILTER (WHERE k.last_end_ns > k.start_ns) AS n_overlapping,
        min(k.start_ns - k.last_end_ns) AS worst_gap_ns,
        count(*) FILTER (WHERE k.launch_ts_ns > k.start_ns) AS n_before_launch,
        min(k.start_ns - k.launch_ts_ns) AS worst_launch_ns,
        count(*) FILTER (
            WHERE NOT k.waited_for_launch
            AND NOT k.may_wait_for_last
            AND NOT k.waits_on_other_stream
            AND k.launch_event_id IS NULL
        ) AS n_orphans
    FROM _kernel_nodes AS k
    JOIN critical_path_windows AS w ON w.window_no = k.window_no
    WHERE w.window_id = 'full'
    GROUP BY w.trace_id
),
syncs AS (
    SELECT w.trace_id, count(*) AS n, max(s.source_end_ns - s.at_ns) AS worst_ns
    FROM _window_waits AS s
    JOIN critical_path_windows AS w ON w.window_no = s.window_no
    WHERE w.window_id = 'full' AND s.is_recorded AND s.source_end_ns > s.at_ns
    GROUP BY w.trace_id
),
crossing AS (
    SELECT c.trace_id, count(*) AS n
    FROM call_stacks AS c
    JOIN events AS e ON e.trace_id = c.trace_id AND e.event_id = c.event_id
    JOIN events AS p ON p.trace_id = c.trace_id AND p.event_id = c.parent_event_id
    WHERE e.end_ns > p.end_ns
    GROUP BY c.trace_id
),
waits AS (
    SELECT
        w.trace_id,
        -- The row states a record.
        count(*) FILTER (
            WHERE w.record_event_id IS NULL AND e.wait_on_cuda_event_record_corr_id > 0
        ) AS n_without_record,
        count(*) FILTER (
            WHERE w.record_event_id IS NOT NULL AND w.source_kernel_id IS NULL AND NOT w.is_inferred
        ) AS n_without_source,
        count(*) FILTER (WHERE w.wait_kind = 'Stream Wait Event' AND w.waiting_kernel_id IS NULL) AS n_without_work
    FROM event_waits AS w
    JOIN events AS e ON e.trace_id = w.trace_id AND e.event_id = w.wait_event_id
    GROUP BY w.trace_id
),
wait_evidence AS (
    SELECT
        w.trace_id, w.evidence, count(*) AS n, count(w.source_kernel_id) AS n_with_source,
        bool_or(w.is_inferred AND w.wait_event_id <> w.wait_call_event_id) AS has_unstated_rows
    FROM event_waits AS w
    GROUP BY w.trace_id, w.evidence
),
inferred AS (
    SELECT w.trace_id, count(*) AS n
    FROM _window_waits AS i
    JOIN critical_path_windows AS w ON w.window_no = i.window_no
    WHERE w.window_id = 'full' AND NOT i.is_recorded
    GROUP BY w.trace_id
),
all_checks AS (
    SELECT trace_id, check_name, severity, n, detail FROM findings
    UNION ALL
    SELECT
        trace_id, 'no_gpu_work', 'info', 1,
        'the trace has no GPU work: the breakdown has no times and the critical path runs on the CPU'
    FROM per_trace
    WHERE n_work = 0
    UNION ALL
    SELECT
        trace_id, 'no_rank', 'info', 1, 'rank unknown: neither distributedInfo nor the file name gives it'
    FROM per_trace
    WHERE rank IS NULL
    UNION ALL
    SELECT
        trace_id, 'no_sync_events', 'warning', n_work,
        'GPU work but no cuda_sync events (PyTorch PR 105187): waits between streams and for the GPU are '
        || 'inferred from calls and times where possible, and otherwise unknown'
    FROM per_trace
    WHERE n_work > 0 AND n_syncs = 0
    UNION ALL
    SELECT
        trace_id, 'unlaunched_work', 'warning', n_unlaunched, 'GPU work whose launch call is not in the trace'
    FROM per_trace
    WHERE n_unlaunched > 0
    UNION ALL
    SELECT
        trace_id, 'graph_replays', 'info', n,
        coalesce(CAST(CAST(percent AS BIGINT) AS VARCHAR), '0')
        || ' % of the GPU time ran in replays of CUDA or HIP graphs, whose operators ran at capture: see graph_kernels'
    FROM graphs
    WHERE n > 0
    UNION ALL
    SELECT
        trace_id, 'zero_duration', 'info', n_zero,
        'events of duration 0: the trace has whole microseconds, or the events are instants'
    FROM per_trace
    WHERE n_zero > 0
    UNION ALL
    SELECT
        trace_id, 'negative_duration_kept', 'warning', n_negative,
        'events of negative duration; the critical path leaves them out'
    FROM per_trace
    WHERE n_negative > 0
    UNION ALL
    SELECT
        trace_id, 'no_category', 'info', n_without_category,
        'events with a duration but no category: kept in table events, used by no model'
    FROM per_trace
    WHERE n_without_category > 0
    UNION ALL
    SELECT
        trace_id, 'no_thread', 'warning', n_without_thread,
        'CPU events without a process or a thread: kept in table events, in no call stack and on no critical path'
    FROM per_trace
    WHERE n_without_thread > 0
    UNION ALL
    SELECT
        trace_id, 'overlap_on_stream', 'warning', n_overlapping,
        'GPU work starts before the previous work on its stream ended (programmatic dependent launch, or '
        || 'clocks), at worst by ' || CAST(-worst_gap_ns AS VARCHAR) || ' ns; on the path the time counts once'
    FROM kernel_gaps
    WHERE n_overlapping > 0
    UNION ALL
    SELECT
        trace_id, 'work_before_launch', 'warning', n_before_launch,
        'GPU work starts before the call that launched it, at worst by ' || CAST(-worst_launch_ns AS VARCHAR)
        || ' ns: the clocks of CPU and GPU disagree'
    FROM kernel_gaps
    WHERE n_before_launch > 0
    UNION ALL
    SELECT
        trace_id, 'orphan_work', 'info', n_orphans,
        'GPU work with no predecessor on the path: its launch is not in the trace and it is first on its stream'
    FROM kernel_gaps
    WHERE n_orphans > 0
    UNION ALL
    SELECT
        trace_id, 'sync_against_time', 'warning', n,
        'a wait ends before the work it waited for, at worst by ' || CAST(worst_ns AS VARCHAR) || ' ns'
    FROM syncs
    UNION ALL
    SELECT
        trace_id, 'crossing_operators', 'warning', n,
        'CPU events end after the event that encloses them: they cross instead of nesting'
    FROM crossing
    UNION ALL
    SELECT
        trace_id, 'wait_without_record', 'warning', n_without_record,
        'event waits whose record call is not in the trace'
    FROM waits
    WHERE n_without_record > 0
    UNION ALL
    SELECT
        trace_id, 'wait_without_source', 'info', n_without_source,
        'event waits whose event was recorded before any GPU work on its stream'
    FROM waits
    WHERE n_without_source > 0
    UNION ALL
    SELECT
        trace_id, 'wait_without_work', 'info', n_without_work,
        'stream waits with no GPU work after them on their stream'
    FROM waits
    WHERE n_without_work > 0
    UNION ALL
    SELECT
        trace_id, 'event_waits_' || evidence, CASE WHEN has_unstated_rows THEN 'warning' ELSE 'info' END, n,
        CASE evidence
            WHEN 'record_and_stream' THEN 'waits for events whose record and stream the trace states'
            WHEN 'cuda_event' THEN 'waits for events whose record and stream a cuda_event row shows'
            WHEN 'record' THEN 'waits for events that state the record; its stream is inferred'
            WHEN 'stream' THEN 'waits for events that state the stream; the record is inferred from the order of calls'
            WHEN 'calls' THEN 'waits for events that state nothing; record and stream are inferred'
            ELSE 'waits for events that state nothing, with no record before them on their thread'
        END
        || ': ' || CAST(n_with_source AS VARCHAR) || ' of them have GPU work that they waited for'
    FROM wait_evidence
    UNION ALL
    SELECT
        trace_id, 'memory_delta', 'warning', count(*),
        'allocations and releases whose bytes do not match the change of the allocator''s totals: events are '
        || 'missing or out of order'
    FROM _memory_events
    WHERE NOT delta_ok
    GROUP BY trace_id
    UNION ALL
    SELECT
        trace_id, 'inferred_waits', 'info', n,
        'waits for GPU work without a cuda_sync event, inferred from calls and times; the critical path uses '
        || 'them (is_inferred)'
    FROM inferred
    UNION ALL
    SELECT
        trace_id, 'no_critical_path', severity, n, window_id || ': ' || detail
    FROM critical_path_caveats
    WHERE caveat = 'no_critical_path'
)
SELECT
    trace_id,  -- The trace.
    check_name,  -- Name of the check.
    severity,  -- info, warning or error.
    CAST(n AS BIGINT) AS n,  -- Number of occurrences.
    detail  -- Meaning of the finding, with the worst case if there is one.
FROM all_checks
