-- One row: an annotation or a Python function on a thread, in a window with a covering path, with its name.
SELECT
    c.window_no,  -- The window.
    c.event_id,  -- The event.
    coalesce(e.cat = 'python_function', FALSE) AS is_function,  -- A Python function; else an annotation.
    coalesce(starts_with(e.name, 'ProfilerStep#'), FALSE) AS is_step,  -- The annotation of a profiler step.
    e.name  -- Its name.
FROM _clip AS c
JOIN _asked_windows AS w ON w.window_no = c.window_no
JOIN events AS e ON e.trace_id = w.trace_id AND e.event_id = c.event_id
WHERE c.side = 'cpu' AND w.covers_window AND NOT c.is_operator
