-- One row: a window with a covering path, and the end of its GPU work.
WITH work AS (
    SELECT window_no, start_ns + duration_ns AS end_ns FROM _clip WHERE side = 'gpu'
)
SELECT
    w.window_no,  -- The window.
    w.end_ns - w.start_ns AS until_ns,  -- End of the window, relative to its start, ns.
    -- End of its last GPU work, relative to the start of the window, ns; NULL without GPU work.
    max(k.end_ns) - w.start_ns AS work_end_ns
FROM _asked_windows AS w
LEFT JOIN work AS k ON k.window_no = w.window_no
WHERE w.covers_window
GROUP BY w.window_no, w.start_ns, w.end_ns
