-- One row: an edge of the dependency graph of a window, in numbers only.
-- How: the union of lock, call-stack, kernel, synchronization, launch, data and inferred edges; ascending edge_id is
-- the order in which HTA inserts them.
-- edge_id: 2^60 times the kind of edge (1 lock, 2 call stack, 3 kernel, 4 synchronization, 5 data, 6 inferred), plus
-- the edge's place among those of its kind; of the call stack 2^40 times the thread, plus the place on the thread.
WITH call_waits AS (
    SELECT
        window_no, dst_event_id * 2 + 1 AS dst_node_id, src_ns, src_in_window, dst_ns - src_ns AS remaining_ns,
        FALSE AS is_inferred
    FROM _sync_edges
    WHERE NOT dst_is_start AND explains_wait
    UNION ALL
    SELECT
        window_no, dst_event_id * 2 + 1, src_ns, src_in_window, weight_ns, TRUE
    FROM _inferred_edges
    WHERE NOT dst_is_start
),
-- A call waited for whatever ended last.
ranked_call_waits AS (
    SELECT
        *, row_number() OVER (PARTITION BY window_no, dst_node_id ORDER BY src_ns DESC, src_in_window DESC) AS choice
    FROM call_waits
),
explained_calls AS (
    SELECT * FROM ranked_call_waits WHERE choice = 1
),
profiled AS (
    SELECT w.window_no, p.blocking_is_always_free, p.zero_from_ns
    FROM critical_path_windows AS w
    JOIN _profiles AS p ON p.trace_profile_id = w.trace_profile_id
),
kernel_edges AS (
    SELECT
        k.window_no, k.ordinal * 8 AS ordinal, k.event_id * 2 AS src_node_id, k.event_id * 2 + 1 AS dst_node_id,
        t.operator_kernel AS edge_code, k.dur_ns AS weight_ns, k.event_id AS attributed_event_id, FALSE AS is_earlier
    FROM _kernel_nodes AS k
    CROSS JOIN _edge_codes AS t
    UNION ALL
    SELECT
        k.window_no, k.ordinal * 8 + 1, k.launch_event_id * 2, k.event_id * 2, t.kernel_launch_delay,
        CASE WHEN k.waited_for_launch THEN k.ts_ns - k.launch_ts_ns ELSE 0 END, NULL, FALSE
    FROM _kernel_nodes AS k
    CROSS JOIN _edge_codes AS t
    WHERE (k.waited_for_launch OR k.zero_weight_launch AND k.launch_in_window) AND NOT k.held_up_since_launch
    UNION ALL
    -- Launched behind work from outside the window: not a launch delay, and there is nothing in the window to follow.
    SELECT
        k.window_no, k.ordinal * 8 + 1, k.launch_event_id * 2, k.event_id * 2, t.kernel_kernel_delay,
        k.ts_ns - k.launch_ts_ns, NULL, k.waits_for_earlier_work
    FROM _kernel_nodes AS k
    CROSS JOIN _edge_codes AS t
    WHERE k.held_up_since_launch
    UNION ALL
    SELECT
        k.window_no, k.ordinal * 8 + 2, k.last_event_id * 2 + 1, k.event_id * 2, t.kernel_kernel_delay,
        k.ts_ns - k.last_end_ns,
        CASE WHEN NOT k.waits_for_earlier_work THEN k.last_event_id END, k.waits_for_earlier_work
    FROM _kernel_nodes AS k
    CROSS JOIN _edge_codes AS t
    WHERE k.may_wait_for_last AND NOT k.waited_for_launch AND k.overlapped_ts_ns IS NULL
    UNION ALL
    -- Overlapping work: the time until the second began belongs to the first, and the second does not finish before the
    -- first.
    SELECT
        k.window_no, k.ordinal * 8 + 3, k.last_event_id * 2, k.event_id * 2, t.operator_kernel,
        k.ts_ns - k.overlapped_ts_ns, k.last_event_id, FALSE
    FROM _kernel_nodes AS k
    CROSS JOIN _edge_codes AS t
    WHERE k.overlapped_ts_ns IS NOT NULL
    UNION ALL
    SELECT k.window_no, k.ordinal * 8 + 4, k.last_event_id * 2 + 1, k.event_id * 2 + 1, t.dependency, 0, NULL, FALSE
    FROM _kernel_nodes AS k
    CROSS JOIN _edge_codes AS t
    WHERE k.overlapped_ts_ns IS NOT NULL AND k.last_end_ns <= k.ts_ns + k.dur_ns
    UNION ALL
    SELECT
        k.window_no, k.ordinal * 8 + 5, k.ordered_after_event_id * 2 + CASE WHEN k.overlaps_previous THEN 0 ELSE 1 END,
        k.event_id * 2, t.dependency, 0, NULL, FALSE
    FROM _kernel_nodes AS k
    CROSS JOIN _edge_codes AS t
    WHERE k.ordered_after_event_id IS NOT NULL
),
-- A kernel that waits for the work before it on its own stream: stream order already says so.
sync_edges AS (
    SELECT s.window_no, s.src_event_id, s.dst_event_id, s.dst_is_start
    FROM _sync_edges AS s
    LEFT JOIN _kernel_nodes AS k
        ON k.window_no = s.window_no AND k.event_id = s.dst_event_id
            AND (
                k.last_event_id = s.src_event_id AND (
                    k.overlapped_ts_ns IS NOT NULL OR k.may_wait_for_last AND NOT k.waited_for_launch
                )
                OR k.ordered_after_event_id = s.src_event_id
            )
    WHERE s.src_in_window AND (k.event_id IS NULL OR NOT s.dst_is_start)
),
edges AS (
    SELECT
        l.window_no, 1152921504606846976 + l.ordinal AS edge_id, l.src_node_id, l.dst_node_id, l.edge_code,
        coalesce(l.dts_ns, 0) AS weight_ns, FALSE AS ends_blocking_call,
        CASE WHEN l.edge_code = t.operator_kernel THEN l.dst_node_id // 2 END AS attributed_event_id,
        FALSE AS is_earlier, FALSE AS is_inferred
    FROM _lock_edges AS l
    CROSS JOIN _edge_codes AS t
    UNION ALL
    SELECT
        c.window_no, 2305843009213693952 + c.thread_id * 1099511627776 + c.ordinal, c.src_node_id, c.dst_node_id,
        c.edge_code,
        CASE WHEN c.edge_code = t.dependency THEN 0 ELSE c.dts_ns END, c.ends_blocking_call, c.attributed_event_id,
        FALSE, FALSE
    FROM _cpu_edges AS c
    CROSS JOIN _edge_codes AS t
    LEFT JOIN _fallen_edges AS f ON f.window_no = c.window_no AND f.thread_id = c.thread_id AND f.ordinal = c.ordinal
    WHERE f.window_no IS NULL
    UNION ALL
    SELECT
        window_no, 3458764513820540928 + ordinal, src_node_id, dst_node_id, edge_code, weight_ns, FALSE,
        attributed_event_id, is_earlier, FALSE
    FROM kernel_edges
    UNION ALL
    SELECT
        s.window_no,
        4611686018427387904 + row_number() OVER (PARTITION BY s.window_no ORDER BY s.dst_event_id, s.src_event_id),
        s.src_event_id * 2 + 1, s.dst_event_id * 2 + CASE WHEN s.dst_is_start THEN 0 ELSE 1 END, t.sync_dependency, 0,
        FALSE, NULL, FALSE, FALSE
    FROM sync_edges AS s
    CROSS JOIN _edge_codes AS t
    UNION ALL
    SELECT
        d.window_no,
        5764607523034230784 + row_number() OVER (PARTITION BY d.window_no ORDER BY d.dst_node_id, d.src_node_id),
        d.src_node_id, d.dst_node_id, d.edge_code, CASE WHEN d.edge_code = t.dependency THEN 0 ELSE d.dts_ns END,
        d.ends_blocking_call, d.attributed_event_id, FALSE, FALSE
    FROM _data_edges AS d
    CROSS JOIN _edge_codes AS t
    UNION ALL
    SELECT
        i.window_no,
        6917529027641081856 + row_number() OVER (PARTITION BY i.window_no ORDER BY i.dst_event_id, i.src_event_id),
        i.src_event_id * 2 + 1, i.dst_event_id * 2 + CASE WHEN i.dst_is_start THEN 0 ELSE 1 END,
        CASE WHEN i.dst_is_start THEN t.kernel_kernel_delay ELSE t.operator_kernel END, i.weight_ns,
        NOT i.dst_is_start, CASE WHEN i.dst_is_start THEN i.src_event_id ELSE i.dst_event_id END, FALSE, TRUE
    FROM _inferred_edges AS i
    CROSS JOIN _edge_codes AS t
    WHERE i.src_in_window
)
SELECT
    e.window_no,  -- The window.
    e.edge_id,  -- Number of the edge within the window; ascending in insertion order.
    e.src_node_id,  -- Source node: twice the event, plus 1 for its end.
    e.dst_node_id,  -- Destination node, likewise.
    e.edge_code,  -- Type of the edge in edge_types.
    -- Weight as measured, ns.
    CASE WHEN e.ends_blocking_call AND p.blocking_is_always_free THEN 0 ELSE e.weight_ns END AS weight_ns,
    CASE
        WHEN e.weight_ns <= p.zero_from_ns OR e.ends_blocking_call AND p.blocking_is_always_free THEN 0
        WHEN c.src_in_window AND c.is_inferred THEN least(e.weight_ns, c.remaining_ns)
        WHEN c.src_in_window AND e.ends_blocking_call THEN 0
        ELSE e.weight_ns
    END AS path_weight_ns,  -- Weight as used on the path, ns.
    e.attributed_event_id,  -- Event whose time it is.
    -- Most of its time was a wait for GPU work from outside the window.
    e.is_earlier OR coalesce(
        NOT c.src_in_window AND 2 * c.remaining_ns <= e.weight_ns, FALSE
    ) AS waits_for_earlier_work,
    e.is_inferred  -- A wait that no cuda_sync row shows: inferred from calls and timing.
FROM edges AS e
JOIN profiled AS p ON p.window_no = e.window_no
CROSS JOIN _edge_codes AS t
LEFT JOIN explained_calls AS c
    ON c.window_no = e.window_no AND c.dst_node_id = e.dst_node_id AND e.edge_code = t.operator_kernel
        AND e.attributed_event_id = e.dst_node_id // 2
