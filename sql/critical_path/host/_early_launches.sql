-- One row: GPU work in a window with a covering path that starts before its launch call, because CPU and GPU clocks
-- disagree.
SELECT
    k.window_no,  -- The window.
    k.event_id,  -- The GPU work.
    k.start_ns - w.start_ns AS at_ns,  -- Start, relative to the start of the window, ns.
    l.thread_id  -- The thread that launched it.
FROM _clip AS k
JOIN _asked_windows AS w ON w.window_no = k.window_no
JOIN _clip AS l ON l.window_no = k.window_no AND l.event_id = k.launch_event_id
WHERE k.side = 'gpu' AND k.launch_in_window AND k.launch_ts_ns > k.start_ns AND w.covers_window AND l.is_operator
