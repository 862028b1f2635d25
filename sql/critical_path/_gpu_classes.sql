-- One row: a piece of GPU work of a window with its class, as the profile of the window sees it.
-- How: the GPU work of _clip, by category and name. A table of its own, because it can be made before there is a path.
SELECT
    c.window_no,  -- The window.
    c.event_id,  -- The GPU work.
    k.class  -- Its class, as in _kernel_class.
FROM _clip AS c
JOIN critical_path_windows AS w ON w.window_no = c.window_no
JOIN events AS e ON e.trace_id = w.trace_id AND e.event_id = c.event_id
JOIN _kernel_class AS k ON k.profile = w.profile AND k.cat = e.cat AND k.name = e.name
WHERE c.side = 'gpu'
