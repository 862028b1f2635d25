-- One row: a GPU activity of a window with its class, as the profile of the window sees it.
-- How: join the GPU work of _clip to _kernel_class by category and name. A separate table, because it does not depend
-- on the path. Materialized, because DuckDB may otherwise join each event with each window of its trace first, or each
-- name of its profile.
WITH placed AS MATERIALIZED (
    SELECT c.window_no, c.event_id, w.trace_id, w.profile
    FROM _clip AS c
    JOIN _asked_windows AS w ON w.window_no = c.window_no
    WHERE c.side = 'gpu'
),
work AS MATERIALIZED (
    SELECT p.window_no, p.event_id, p.profile, e.cat, e.name
    FROM placed AS p
    JOIN events AS e ON e.trace_id = p.trace_id AND e.event_id = p.event_id
)
SELECT
    c.window_no,  -- The window.
    c.event_id,  -- The GPU work.
    k.class  -- Its class, as in _kernel_class.
FROM work AS c
JOIN _kernel_class AS k ON k.profile = c.profile AND k.cat = c.cat AND k.name IS NOT DISTINCT FROM c.name
