-- One row: a call of a loop that polled until GPU work had ended (_poll_loops), in a window with a covering path that
-- contains the last call of the loop.
-- Materialized, as in _window_waits: DuckDB may otherwise join each loop with each window of its trace first.
WITH calls AS MATERIALIZED (
    SELECT c.window_no, w.trace_profile_id, c.thread_id, c.event_id, c.start_ns - w.start_ns AS at_ns
    FROM _clip AS c
    JOIN _asked_windows AS w ON w.window_no = c.window_no AND w.covers_window
    WHERE c.is_operator
),
asking AS MATERIALIZED (
    SELECT c.window_no, c.thread_id, c.event_id, c.at_ns, p.last_event_id
    FROM _poll_loops AS p
    JOIN calls AS c ON c.trace_profile_id = p.trace_profile_id AND c.event_id = p.event_id
    WHERE p.has_waited
)
SELECT
    c.window_no,  -- The window.
    c.thread_id,  -- The thread.
    c.event_id,  -- The call.
    c.at_ns,  -- Start, relative to the start of the window, ns.
    c.last_event_id  -- The last call of the loop.
FROM asking AS c
JOIN calls AS l ON l.window_no = c.window_no AND l.event_id = c.last_event_id
