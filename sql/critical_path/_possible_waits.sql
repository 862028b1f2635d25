-- One row: GPU work of a window that the path covers and work of the window on another stream that it waited for.
-- How: the waits of _kernel_waits that times do not contradict by more than clocks disagree (10 us).
SELECT DISTINCT
    w.window_no,  -- The window.
    w.event_id,  -- GPU work that waits.
    w.source_event_id,  -- GPU work that has to end first.
    s.start_ns AS source_start_ns,  -- Its start, ns.
    s.start_ns + s.duration_ns AS source_end_ns,  -- Its end, ns; up to 10 us after the start of the work that waits.
    w.is_inferred  -- Not shown by a cuda_sync row: inferred from calls and timing.
FROM _kernel_waits AS w
JOIN _kernel_nodes AS k ON k.window_no = w.window_no AND k.event_id = w.event_id
JOIN _kernel_nodes AS s ON s.window_no = w.window_no AND s.event_id = w.source_event_id
WHERE
    w.source_in_window AND NOT w.is_same_stream AND s.covers_window AND s.stream_key <> k.stream_key
    AND s.start_ns <= k.start_ns AND s.start_ns + s.duration_ns <= k.start_ns + 10000
