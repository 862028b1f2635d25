-- One row: a piece of GPU work of a CUDA or HIP graph that ran on several streams, and the work of the same launch that
-- ended last before it began.
-- How: of the work that it depends on (_graph_dependencies), the one that ended last. Where the trace does not have the
-- graph's own edges, the last work to end stands for whatever released this work: starts and ends of a launch's work in
-- time order; the last end before each start.
WITH spread AS (
    SELECT c.window_no, c.launch_event_id, w.trace_id
    FROM _clip AS c
    JOIN critical_path_windows AS w ON w.window_no = c.window_no
    JOIN _profiles AS p ON p.trace_profile_id = w.trace_profile_id
    WHERE c.side = 'gpu' AND c.launch_event_id IS NOT NULL AND NOT p.one_kernel_per_launch
    GROUP BY c.window_no, c.launch_event_id, w.trace_id
    HAVING min(c.stream_key) <> max(c.stream_key)
),
work AS (
    SELECT s.trace_id, c.window_no, c.launch_event_id, c.event_id, c.start_ns, c.start_ns + c.duration_ns AS end_ns
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
),
known AS (
    SELECT
        w.window_no, w.event_id, p.event_id AS released_by_event_id, p.end_ns AS released_ns,
        row_number() OVER (
            PARTITION BY w.window_no, w.event_id ORDER BY p.end_ns DESC NULLS LAST, p.event_id DESC
        ) AS choice
    FROM work AS w
    JOIN _graph_dependencies AS d ON d.trace_id = w.trace_id AND d.event_id = w.event_id
    LEFT JOIN work AS p
        ON p.window_no = w.window_no AND p.launch_event_id = w.launch_event_id AND p.event_id = d.source_event_id
            AND p.end_ns <= w.start_ns
),
chosen AS (
    SELECT window_no, event_id, released_by_event_id, released_ns FROM known WHERE choice = 1
    UNION ALL
    SELECT g.window_no, g.event_id, g.released_by_event_id, g.released_ns
    FROM walked AS g
    LEFT JOIN known AS k ON k.window_no = g.window_no AND k.event_id = g.event_id AND k.choice = 1
    WHERE g.turn = 1 AND k.event_id IS NULL
)
SELECT
    window_no,  -- The window.
    event_id,  -- GPU work of the graph.
    -- Work of the same launch, on any stream, that ended last before it began; of what it depends on, if that is known.
    released_by_event_id,
    released_ns  -- The end of that work, ns.
FROM chosen
WHERE released_by_event_id IS NOT NULL
