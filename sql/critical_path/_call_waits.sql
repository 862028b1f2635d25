-- One row: a call of a window that the path covers and GPU work that it waited for, or that had ended before it began.
-- How: what cuda_sync rows tell (_sync_edges) or what is inferred (_inferred_edges, _likely_waits; with such rows or
-- without, _queue_waits; a call for one stream or event waited for one), where the times do not contradict it by more
-- than clocks disagree (10 us, and 1 % of a longer call, at most 50). The work may lie outside the window.
WITH inferred AS (
    SELECT DISTINCT window_no, dst_event_id AS event_id FROM _inferred_edges WHERE NOT dst_is_start
),
-- Materialized: DuckDB would join each inferred wait with each window of its trace first.
calls AS MATERIALIZED (
    SELECT c.window_no, w.trace_profile_id, c.event_id, c.start_ns, c.start_ns + c.duration_ns AS end_ns
    FROM _clip AS c
    JOIN critical_path_windows AS w ON w.window_no = c.window_no AND w.covers_window
    WHERE c.is_operator
),
told AS (
    SELECT
        s.window_no, s.dst_event_id AS event_id, s.src_event_id AS source_event_id, s.src_ns AS source_end_ns,
        s.src_in_window AS source_in_window, s.is_inferred, FALSE AS is_launch
    FROM _sync_edges AS s
    WHERE NOT s.dst_is_start
    UNION ALL
    SELECT i.window_no, i.dst_event_id, i.src_event_id, i.src_ns, i.src_in_window, TRUE, FALSE
    FROM _inferred_edges AS i
    WHERE NOT i.dst_is_start
    UNION ALL
    SELECT
        w.window_no, l.event_id, l.source_event_id, h.end_ns, k.event_id IS NOT NULL, TRUE, FALSE
    FROM _likely_waits AS l
    JOIN calls AS w ON w.trace_profile_id = l.trace_profile_id AND w.event_id = l.event_id
    JOIN _gpu_history AS h ON h.scope_no = -l.trace_profile_id AND h.event_id = l.source_event_id
    LEFT JOIN _kernel_nodes AS k ON k.window_no = w.window_no AND k.event_id = l.source_event_id
    LEFT JOIN _inferred_edges AS i
        ON i.window_no = w.window_no AND i.dst_event_id = l.event_id AND i.src_event_id = l.source_event_id
            AND NOT i.dst_is_start
    LEFT JOIN inferred AS f ON f.window_no = w.window_no AND f.event_id = l.event_id
    WHERE i.window_no IS NULL AND (f.event_id IS NULL OR NOT l.waits_for_one)
    UNION ALL
    SELECT w.window_no, q.event_id, q.source_event_id, q.source_end_ns, k.event_id IS NOT NULL, TRUE, TRUE
    FROM _queue_waits AS q
    JOIN calls AS w ON w.trace_profile_id = q.trace_profile_id AND w.event_id = q.event_id
    LEFT JOIN _kernel_nodes AS k ON k.window_no = w.window_no AND k.event_id = q.source_event_id
),
-- Short work that by the GPU's clock began after the call had returned stands for the work before it on its stream.
placed AS (
    SELECT
        t.window_no, t.event_id, t.source_in_window, t.is_inferred, t.is_launch, c.start_ns, c.end_ns,
        CASE WHEN k.start_ns > c.end_ns THEN l.event_id ELSE t.source_event_id END AS source_event_id,
        CASE WHEN k.start_ns > c.end_ns THEN l.start_ns ELSE k.start_ns END AS source_start_ns,
        CASE WHEN k.start_ns > c.end_ns THEN l.start_ns + l.duration_ns ELSE t.source_end_ns END AS source_end_ns
    FROM told AS t
    JOIN calls AS c ON c.window_no = t.window_no AND c.event_id = t.event_id
    LEFT JOIN _kernel_nodes AS k ON k.window_no = t.window_no AND k.event_id = t.source_event_id
    LEFT JOIN _kernel_nodes AS l ON l.window_no = k.window_no AND l.event_id = k.last_event_id
)
SELECT DISTINCT
    window_no,  -- The window.
    event_id,  -- The call.
    start_ns,  -- Its start, ns.
    end_ns,  -- Its end, ns.
    source_event_id,  -- The GPU work.
    source_start_ns,  -- Its start, ns; NULL outside the window.
    source_end_ns,  -- Its end, ns.
    source_in_window,  -- It belongs to the window.
    source_end_ns > start_ns AS has_waited,  -- The call began while it was still running.
    is_inferred,  -- Not shown by a cuda_sync row: inferred from calls and timing.
    is_launch  -- The call launches work, and its stream's queue was full at times.
FROM placed
WHERE
    source_event_id IS NOT NULL
    AND source_end_ns <= end_ns + greatest(10000, least(50000, (end_ns - start_ns) // 100))
    AND (source_start_ns IS NULL OR source_start_ns <= end_ns)
