-- One row: a window with a covering path, with the end of its GPU work.
WITH work AS (
    SELECT window_no, start_ns + duration_ns AS end_ns FROM _clip WHERE side = 'gpu'
)
SELECT
    w.window_no,  -- The window.
    w.end_ns - w.start_ns AS until_ns,  -- Its end since its start, ns.
    -- The end of its last GPU work since its start, ns; NULL where there is none.
    max(k.end_ns) - w.start_ns AS work_end_ns
FROM _asked_windows AS w
LEFT JOIN work AS k ON k.window_no = w.window_no
WHERE w.covers_window
GROUP BY w.window_no, w.start_ns, w.end_ns
