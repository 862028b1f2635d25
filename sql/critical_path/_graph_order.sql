-- One row: a piece of GPU work of a CUDA or HIP graph that ran on several streams, and the work of the same launch that
-- ended last before it began.
-- How: starts and ends of a launch's work in time order; the last end before each start. A trace does not contain the
-- graph's own edges, so the last work to end stands for whatever released this work.
WITH spread AS (
    SELECT c.window_no, c.launch_event_id
    FROM _clip AS c
    JOIN critical_path_windows AS w ON w.window_no = c.window_no
    JOIN _profiles AS p ON p.trace_profile_id = w.trace_profile_id
    WHERE c.side = 'gpu' AND c.launch_event_id IS NOT NULL AND NOT p.one_kernel_per_launch
    GROUP BY c.window_no, c.launch_event_id
    HAVING min(c.stream_key) <> max(c.stream_key)
),
work AS (
    SELECT c.window_no, c.launch_event_id, c.event_id, c.start_ns, c.start_ns + c.duration_ns AS end_ns
    FROM _clip AS c
    JOIN spread AS s ON s.window_no = c.window_no AND s.launch_event_id = c.launch_event_id
    WHERE c.side = 'gpu'
),
marks AS (
    SELECT
        window_no, launch_event_id, start_ns AS at_ns, 1 AS turn, event_id, CAST(NULL AS BIGINT) AS ended_event_id,
        CAST(NULL AS BIGINT) AS ended_ns
    FROM work
    UNION ALL
    SELECT window_no, launch_event_id, end_ns, 0, event_id, event_id, end_ns
    FROM work
    WHERE end_ns > start_ns
),
walked AS (
    SELECT
        window_no, event_id, turn,
        last_value(ended_event_id IGNORE NULLS) OVER before AS released_by_event_id,
        last_value(ended_ns IGNORE NULLS) OVER before AS released_ns
    FROM marks
    WINDOW before AS (
        PARTITION BY window_no, launch_event_id ORDER BY at_ns, turn, event_id
        ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    )
)
SELECT
    window_no,  -- The window.
    event_id,  -- GPU work of the graph.
    released_by_event_id,  -- Work of the same launch, on any stream, that ended last before it began.
    released_ns  -- The end of that work, ns.
FROM walked
WHERE turn = 1 AND released_by_event_id IS NOT NULL
