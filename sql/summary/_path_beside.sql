-- One row: a window whose path has time without GPU work of its own: how long the GPU only communicated meanwhile, and
-- how long it was idle in gaps.
-- How: the path's host time and delays as stretches that do not overlap. What ran in a stretch is what had run by its
-- end, less what had run by its start: the ends of all stretches and of all work in one order of time.
-- A trace without communication has no such stretches, and a path without long gaps no such gaps: both cost nothing.
WITH asked AS (
    SELECT w.window_no, w.trace_id
    FROM critical_path_windows AS w
    WHERE w.trace_id IN (SELECT c.trace_id FROM _only_communication AS c)
),
kinds AS (
    SELECT edge_code, is_gap, bound_by FROM edge_types
),
-- Twice the window, plus 1 for a gap that asks for any work at all. The trace is known before any event is met: DuckDB
-- otherwise compares each event with all windows of its trace.
delays AS (
    SELECT b.window_no * 2 AS question, w.trace_id, b.path_weight_ns, b.dst_node_id
    FROM _path_bounds AS b
    JOIN kinds AS t ON t.edge_code = b.edge_code
    JOIN asked AS w ON w.window_no = b.window_no
    WHERE b.path_weight_ns > 0 AND (b.bound_by IN ('cpu_bound', 'host_gap') OR t.is_gap AND b.bound_by = t.bound_by)
    UNION ALL
    SELECT b.window_no * 2 + 1, w.trace_id, b.path_weight_ns, b.dst_node_id
    FROM _path_bounds AS b
    JOIN kinds AS t ON t.edge_code = b.edge_code
    JOIN critical_path_windows AS w ON w.window_no = b.window_no
    WHERE
        b.path_weight_ns > threshold('idle_gap_ns')
        AND t.is_gap AND (b.bound_by = 'cpu_bound' OR b.bound_by = t.bound_by)
),
placed AS (
    SELECT
        d.question,
        e.start_ns + CASE WHEN d.dst_node_id % 2 = 1 THEN e.duration_ns ELSE 0 END - d.path_weight_ns AS start_ns,
        e.start_ns + CASE WHEN d.dst_node_id % 2 = 1 THEN e.duration_ns ELSE 0 END AS end_ns
    FROM delays AS d
    JOIN events AS e ON e.trace_id = d.trace_id AND e.event_id = d.dst_node_id // 2
),
reached AS (
    SELECT
        question, start_ns, end_ns,
        max(end_ns) OVER (
            PARTITION BY question ORDER BY start_ns ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS reached_ns
    FROM placed
),
-- Where one stretch ends another usually begins; their ends would cancel out. So: the start of each stretch that begins
-- after all others have ended, the end of what came before it, and the last end.
ends AS (
    SELECT question, start_ns AS at_ns, -1 AS sign
    FROM reached
    WHERE reached_ns IS NULL OR start_ns > reached_ns
    UNION ALL
    SELECT question, reached_ns, 1
    FROM reached
    WHERE start_ns > reached_ns
    UNION ALL
    SELECT question, max(end_ns), 1 FROM placed GROUP BY question
),
asking AS (
    SELECT question, min(start_ns) AS start_ns, max(end_ns) AS end_ns
    FROM placed
    WHERE question % 2 = 1
    GROUP BY question
),
gaps AS (
    SELECT w.trace_id, min(a.start_ns) AS start_ns, max(a.end_ns) AS end_ns
    FROM asking AS a
    JOIN critical_path_windows AS w ON w.window_no = a.question // 2
    GROUP BY w.trace_id
),
work AS (
    SELECT
        g.trace_id, e.start_ns, e.end_ns,
        max(e.end_ns) OVER (
            PARTITION BY g.trace_id ORDER BY e.start_ns ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS reached_ns
    FROM events AS e
    JOIN category_sides AS s ON s.cat = e.cat AND s.side = 'gpu'
    JOIN _kernel_class AS k
        ON k.cat = e.cat AND k.name = e.name AND k.profile = 'default'
    JOIN class_kinds AS n ON n.class = k.class AND n.counts_as IN ('COMMUNICATION', 'COMPUTATION', 'MEMORY')
    JOIN gaps AS g ON g.trace_id = e.trace_id AND g.start_ns < e.end_ns AND g.end_ns > e.start_ns
    WHERE e.duration_ns > 0
),
stretches AS (
    SELECT trace_id, 0 AS is_any, start_ns, end_ns FROM _only_communication
    UNION ALL
    SELECT trace_id, 1, greatest(start_ns, coalesce(reached_ns, start_ns)), end_ns
    FROM work
    WHERE reached_ns IS NULL OR end_ns > reached_ns
),
marks AS (
    SELECT trace_id, is_any, start_ns AS at_ns, 1 AS running, CAST(NULL AS BIGINT) AS window_no, 0 AS sign
    FROM stretches
    UNION ALL
    SELECT trace_id, is_any, end_ns, -1, NULL, 0 FROM stretches
    UNION ALL
    SELECT w.trace_id, e.question - w.window_no * 2, e.at_ns, 0, w.window_no, e.sign
    FROM ends AS e
    JOIN critical_path_windows AS w ON w.window_no = e.question // 2
),
-- By a time t, work has run for the ends before t, less the starts before t, plus t while it still runs. The order of
-- marks at one time does not matter.
swept AS (
    SELECT
        window_no, is_any, at_ns, sign,
        sum(running) OVER in_time * at_ns - sum(running * at_ns) OVER in_time AS run_ns
    FROM marks
    WINDOW in_time AS (
        PARTITION BY trace_id, is_any ORDER BY at_ns ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    )
)
SELECT
    window_no,  -- The window.
    -- Time in which the path counts as host time or overhead and the GPU only communicated, ns.
    sum(CASE WHEN is_any = 0 THEN sign * run_ns ELSE 0 END) AS communicating_ns,
    -- Time of the path's gaps over 1 ms in which nothing ran on the GPU, ns.
    sum(CASE WHEN is_any = 1 THEN sign * (at_ns - run_ns) ELSE 0 END) AS idle_ns
FROM swept
WHERE window_no IS NOT NULL
GROUP BY window_no
