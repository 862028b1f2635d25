-- One row: a call of a loop that asked until GPU work had ended, in a window that the path covers and that has the last
-- call of the loop.
SELECT
    c.window_no,  -- The window.
    c.thread_id,  -- The thread.
    c.event_id,  -- The call.
    c.start_ns - w.start_ns AS at_ns,  -- Its start since the window's, ns.
    p.last_event_id  -- The last call of the loop.
FROM _poll_loops AS p
JOIN _asked_windows AS w ON w.trace_profile_id = p.trace_profile_id
JOIN _clip AS c ON c.window_no = w.window_no AND c.event_id = p.event_id
JOIN _clip AS l ON l.window_no = w.window_no AND l.event_id = p.last_event_id
WHERE p.has_waited AND w.covers_window AND c.is_operator AND l.is_operator
