-- One row: a call of a window that the path covers and GPU work that it waited for, or that had ended before it began.
-- How: what cuda_sync rows tell (_sync_edges) or what is inferred (_inferred_edges, _likely_waits), where the times do
-- not contradict it by more than clocks disagree (10 us). The work may lie outside the window.
WITH told AS (
    SELECT
        s.window_no, s.dst_event_id AS event_id, s.src_event_id AS source_event_id, s.src_ns AS source_end_ns,
        s.src_in_window AS source_in_window, FALSE AS is_inferred
    FROM _sync_edges AS s
    WHERE NOT s.dst_is_start
    UNION ALL
    SELECT i.window_no, i.dst_event_id, i.src_event_id, i.src_ns, i.src_in_window, TRUE
    FROM _inferred_edges AS i
    WHERE NOT i.dst_is_start
    UNION ALL
    SELECT
        w.window_no, l.event_id, l.source_event_id, h.end_ns, k.event_id IS NOT NULL, TRUE
    FROM _likely_waits AS l
    JOIN critical_path_windows AS w ON w.trace_profile_id = l.trace_profile_id AND w.covers_window
    JOIN _gpu_history AS h ON h.scope_no = -l.trace_profile_id AND h.event_id = l.source_event_id
    LEFT JOIN _kernel_nodes AS k ON k.window_no = w.window_no AND k.event_id = l.source_event_id
    LEFT JOIN _inferred_edges AS i
        ON i.window_no = w.window_no AND i.dst_event_id = l.event_id AND i.src_event_id = l.source_event_id
            AND NOT i.dst_is_start
    WHERE l.is_call AND i.window_no IS NULL
)
SELECT
    t.window_no,  -- The window.
    t.event_id,  -- The call.
    c.ts_ns,  -- Its start, ns.
    c.ts_ns + c.dur_ns AS end_ns,  -- Its end, ns.
    t.source_event_id,  -- The GPU work.
    k.ts_ns AS source_start_ns,  -- Its start, ns; NULL outside the window.
    t.source_end_ns,  -- Its end, ns.
    t.source_in_window,  -- It belongs to the window.
    t.source_end_ns > c.ts_ns AS has_waited,  -- The call began while it was still running.
    t.is_inferred  -- Not shown by a cuda_sync row: inferred from calls and timing.
FROM told AS t
JOIN critical_path_windows AS w ON w.window_no = t.window_no AND w.covers_window
JOIN _clip AS c ON c.window_no = t.window_no AND c.event_id = t.event_id AND c.is_operator
LEFT JOIN _kernel_nodes AS k ON k.window_no = t.window_no AND k.event_id = t.source_event_id
WHERE t.source_end_ns <= c.ts_ns + c.dur_ns + 10000 AND (k.ts_ns IS NULL OR k.ts_ns <= c.ts_ns + c.dur_ns)
