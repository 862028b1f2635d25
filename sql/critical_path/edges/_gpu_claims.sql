-- One row: an edge into GPU work, or its own time, in a window with a covering path.
-- part of: _claim_parts
-- How: edges lead into work from its launch and from the work before it on its stream (work_claims), and from awaited
-- work on other streams (wait_claims). A node without such an edge gets an edge from the start of the window
-- (root_claims). bound_work decides which of them delayed its start.
WITH depending AS (
    SELECT w.window_no, d.event_id, d.source_event_id
    FROM _graph_dependencies AS d
    JOIN _asked_windows AS w ON w.trace_id = d.trace_id AND w.covers_window
    WHERE d.source_event_id IS NOT NULL
),
known AS (
    SELECT DISTINCT window_no, event_id FROM depending
),
all_waits AS (
    SELECT w.window_no, w.event_id, w.source_event_id, w.is_inferred
    FROM _window_waits AS w
    LEFT JOIN known AS d ON d.window_no = w.window_no AND d.event_id = w.event_id
    WHERE
        NOT w.is_call AND w.source_in_window AND NOT w.is_same_stream AND NOT (w.is_inferred AND d.event_id IS NOT NULL)
    UNION ALL
    SELECT window_no, event_id, source_event_id, FALSE FROM depending
),
-- A wait that one call records counts as recorded, even if it is also inferred from another call.
merged_waits AS (
    SELECT window_no, event_id, source_event_id, bool_and(is_inferred) AS is_inferred
    FROM all_waits
    GROUP BY window_no, event_id, source_event_id
),
-- Materialized, because DuckDB would join the waiting work with all other work of the window.
waiting AS MATERIALIZED (
    SELECT w.window_no, w.event_id, w.source_event_id, w.is_inferred, k.stream_key, k.start_ns
    FROM merged_waits AS w
    JOIN _kernel_nodes AS k ON k.window_no = w.window_no AND k.event_id = w.event_id
),
-- One row: GPU work of a window with a covering path, and work of the window on another stream that it waited for.
-- How: the waits of _window_waits and the dependencies inside CUDA graphs (_graph_dependencies), unless the times
-- contradict them by more than the disagreement of clocks (10 us). Graph work whose dependencies the trace records has
-- no inferred waits.
possible_waits AS MATERIALIZED (
    SELECT
        w.window_no,  -- The window.
        w.event_id,  -- GPU work that waits.
        w.source_event_id,  -- GPU work that must end first.
        s.start_ns AS source_start_ns,  -- Start of the awaited work, ns.
        -- End of the awaited work, ns; up to 10 us after the start of the waiting work.
        s.start_ns + s.duration_ns AS source_end_ns,
        w.is_inferred  -- No cuda_sync row records the wait: inferred from calls and timing.
    FROM waiting AS w
    JOIN _kernel_nodes AS s ON s.window_no = w.window_no AND s.event_id = w.source_event_id
    WHERE
        s.covers_window AND s.stream_key <> w.stream_key AND s.start_ns <= w.start_ns
        AND s.start_ns + s.duration_ns <= w.start_ns + threshold('call_disagrees_ns')
),
-- One row: a call that launched more than one GPU activity: a launch of a CUDA or HIP graph.
-- How: count the GPU activities of each launch.
graph_launches AS (
    SELECT
        h.trace_profile_id,  -- The trace as a profile sees it.
        h.launch_event_id,  -- The call.
        min(h.start_ns) AS first_ns  -- Start of its first GPU activity, ns.
    FROM _gpu_history AS h
    JOIN _profiles AS p ON p.trace_profile_id = h.trace_profile_id
    WHERE p.covers_window AND h.launch_event_id IS NOT NULL
    GROUP BY h.trace_profile_id, h.launch_event_id
    HAVING count(*) > 1
),
launched_work AS (
    SELECT
        h.trace_profile_id, h.device, h.start_ns, h.launch_ts_ns, h.busy_until_ns,
        g.launch_event_id IS NOT NULL AS is_graph
    FROM _gpu_history AS h
    JOIN _profiles AS p ON p.trace_profile_id = h.trace_profile_id
    LEFT JOIN graph_launches AS g
        ON g.trace_profile_id = h.trace_profile_id AND g.launch_event_id = h.launch_event_id
    WHERE p.covers_window
),
gaps AS (
    SELECT
        h.trace_profile_id, h.device,
        min(CASE WHEN h.start_ns >= h.busy_until_ns THEN h.start_ns - h.busy_until_ns END) AS gap_ns
    FROM launched_work AS h
    GROUP BY h.trace_profile_id, h.device
),
floors AS (
    SELECT
        h.trace_profile_id, h.device, h.is_graph,
        min(CASE WHEN h.start_ns >= h.launch_ts_ns THEN h.start_ns - h.launch_ts_ns END) AS launch_ns,
        min(h.start_ns - h.launch_ts_ns) AS earliest_ns,
        CASE WHEN h.is_graph THEN threshold('graph_floor_ns') ELSE threshold('launch_floor_ns') END AS most_ns
    FROM launched_work AS h
    GROUP BY h.trace_profile_id, h.device, h.is_graph
),
known_floors AS (
    SELECT
        f.trace_profile_id, f.device, f.is_graph,
        CASE
            WHEN f.launch_ns <= f.most_ns THEN f.launch_ns ELSE threshold('launch_usual_ns')
        END AS launch_ns,
        CASE
            WHEN f.earliest_ns < 0 THEN f.earliest_ns
            WHEN f.launch_ns <= f.most_ns THEN f.launch_ns
            ELSE threshold('launch_usual_ns')
        END AS earliest_ns,
        CASE WHEN g.gap_ns <= threshold('gap_floor_ns') THEN g.gap_ns ELSE threshold('gap_usual_ns') END AS gap_ns
    FROM floors AS f
    JOIN gaps AS g ON g.trace_profile_id = f.trace_profile_id AND g.device = f.device
),
left_over AS (
    SELECT
        h.trace_profile_id, h.device, h.is_graph, h.start_ns - h.launch_ts_ns - f.earliest_ns AS launch_rest_ns,
        h.start_ns - h.busy_until_ns - f.gap_ns AS gap_rest_ns
    FROM launched_work AS h
    JOIN known_floors AS f
        ON f.trace_profile_id = h.trace_profile_id AND f.device = h.device AND f.is_graph = h.is_graph
),
spreads AS (
    SELECT
        trace_profile_id, device, is_graph,
        avg(
            CASE
                WHEN
                    gap_rest_ns > threshold('surely_held_up_ns')
                    AND launch_rest_ns <= threshold('launch_spread_most_ns')
                    THEN launch_rest_ns
            END
        ) AS launch_spread_ns,
        avg(
            CASE
                WHEN
                    launch_rest_ns > threshold('surely_held_up_ns')
                    AND gap_rest_ns BETWEEN 0 AND threshold('gap_spread_most_ns')
                    THEN gap_rest_ns
            END
        ) AS gap_spread_ns
    FROM left_over
    GROUP BY trace_profile_id, device, is_graph
),
-- One row: a device of a trace and a kind of launch (of one GPU activity, or of a graph), with the minimum launch
-- latency, the minimum gap between neighbors of a stream, and the spread of both.
-- How: the smallest latency and gap that are not negative, over the whole trace. If the smallest gap exceeds 2 us, or
-- the smallest latency exceeds 20 us (100 us for a graph), the device never started work immediately. Then 1 us or 5 us
-- applies, as on most devices. Spreads are averages over work whose bound is certain: its launch if it began long after
-- the work before it, and the work before it if its launch was long ago.
device_floors AS (
    SELECT
        f.trace_profile_id,  -- The trace as a profile sees it.
        f.device,  -- The device.
        f.is_graph,  -- The launches are launches of graphs.
        f.launch_ns,  -- Minimum time from the start of a launch call to the start of its work, ns.
        -- launch_ns; if work began before its launch because clocks disagree, the most negative latency, ns.
        f.earliest_ns,
        f.gap_ns,  -- Minimum time from the end of work to the start of the next work on its stream, ns.
        -- Mean launch latency above the minimum, ns.
        greatest(
            coalesce(s.launch_spread_ns, threshold('launch_spread_usual_ns')), threshold('launch_spread_least_ns')
        ) AS launch_spread_ns,
        -- Mean gap above the minimum, ns.
        greatest(
            coalesce(s.gap_spread_ns, threshold('gap_spread_usual_ns')), threshold('gap_spread_least_ns')
        ) AS gap_spread_ns
    FROM known_floors AS f
    LEFT JOIN spreads AS s
        ON s.trace_profile_id = f.trace_profile_id AND s.device = f.device AND s.is_graph = f.is_graph
),
asked AS (
    SELECT window_no, trace_profile_id FROM _asked_windows WHERE covers_window
),
-- possible_waits contains no wait for work that ended later by more than the disagreement of clocks.
last_waits AS (
    SELECT w.window_no, w.event_id, max(w.source_end_ns) AS waited_until_ns
    FROM possible_waits AS w
    GROUP BY w.window_no, w.event_id
),
-- Edges never go back in time. If the source had not ended when the work began, the time since the source's start
-- counts. If the work began before its launch, because clocks disagree, its edge comes from the node that the launching
-- thread had passed by then.
possible AS (
    SELECT
        k.*, coalesce(f.gap_ns, 0) AS gap_ns,
        CASE
            WHEN k.launch_in_window AND k.launch_ts_ns <= k.start_ns THEN k.start_ns - k.launch_ts_ns
            ELSE y.elapsed_ns
        END AS since_launch_ns,
        CASE
            WHEN k.launch_in_window AND k.launch_ts_ns <= k.start_ns THEN k.launch_event_id * 2
            ELSE y.node_id
        END AS launch_node_id,
        CASE WHEN k.launch_in_window THEN k.start_ns - k.launch_ts_ns END AS latency_ns,
        y.event_id IS NOT NULL AS is_early,
        -- Later work of a graph launch follows the first. Work launched long before its stream was free follows the
        -- stream.
        g.first_ns < k.start_ns
        -- Overlapped work, and awaited work that is not in the trace, count as ended when this work begins.
        OR greatest(
            CASE WHEN k.outside_end_ns < k.start_ns THEN k.outside_end_ns END,
            CASE WHEN k.last_end_ns > k.start_ns THEN k.start_ns ELSE k.last_end_ns END
        )
        > k.launch_ts_ns + f.launch_ns + CAST(
            least(
                threshold('launched_before_spreads') * f.launch_spread_ns, threshold('launched_before_most_ns')
            ) AS BIGINT
        )
            AS is_launched_before,
        CASE
            WHEN k.last_event_id IS NOT NULL THEN k.start_ns - coalesce(k.overlapped_ts_ns, k.last_end_ns)
        END AS since_last_ns,
        CASE WHEN v.waited_until_ns IS NOT NULL THEN greatest(k.start_ns - v.waited_until_ns, 0) END AS since_wait_ns,
        coalesce(f.launch_ns, 0) AS launch_ns, f.earliest_ns, f.launch_spread_ns, f.gap_spread_ns
    FROM _kernel_nodes AS k
    JOIN asked AS w ON w.window_no = k.window_no
    LEFT JOIN last_waits AS v ON v.window_no = k.window_no AND v.event_id = k.event_id
    LEFT JOIN _early_work AS y ON y.window_no = k.window_no AND y.event_id = k.event_id
    LEFT JOIN graph_launches AS g
        ON g.trace_profile_id = w.trace_profile_id AND g.launch_event_id = k.launch_event_id
    LEFT JOIN device_floors AS f
        ON f.trace_profile_id = w.trace_profile_id AND f.device = k.device
            AND f.is_graph = (g.launch_event_id IS NOT NULL)
),
-- The time of each candidate above its minimum, in multiples of the spread.
rests AS (
    SELECT
        *,
        CASE
            WHEN since_launch_ns IS NULL OR is_launched_before AND (since_last_ns >= 0 OR since_wait_ns >= 0) THEN NULL
            ELSE (latency_ns - least(latency_ns, earliest_ns)) / launch_spread_ns
        END AS launch_rest,
        CASE
            WHEN overlapped_ts_ns IS NULL THEN since_last_ns - least(since_last_ns, gap_ns)
            -- Work launched before the overlapped work began follows that work. Work launched later follows its launch.
            WHEN latency_ns - launch_ns < since_last_ns THEN since_last_ns
            ELSE 0
        END / gap_spread_ns AS last_rest,
        (since_wait_ns - least(since_wait_ns, gap_ns)) / gap_spread_ns AS wait_rest
    FROM possible
),
-- One row: a GPU activity of a window with a covering path, with the reason for the delay of its start.
-- How: a launch delays work by at least the device's minimum launch latency. The preceding work on the stream, and
-- waits, delay it by at least the minimum gap. The candidate that allowed the latest start is binding: its edge claims
-- all of the time, and the other edges claim the minimum.
bound_work AS MATERIALIZED (
    SELECT
        window_no,  -- The window.
        ordinal,  -- Position in time order.
        event_id,  -- The GPU work.
        start_ns,  -- Start, ns.
        duration_ns,  -- Duration, ns.
        launch_node_id,  -- The start of the call that launched it; a node before it where clocks disagree.
        since_launch_ns,  -- Time since that node, ns; NULL if the window has no such node.
        is_early,  -- The work began before its launch call, because clocks disagree.
        last_event_id,  -- Work before it on its stream or in its graph.
        since_last_ns,  -- Time since that work ended, or began if both overlap, ns; NULL without such work.
        overlapped_ts_ns IS NOT NULL AS overlaps_last,  -- The work began before that work ended.
        last_end_ns <= start_ns + duration_ns AS ends_after_last,  -- The activity does not end before last_event_id.
        -- Other work on the stream that the activity follows.
        CASE WHEN ordered_after_event_id <> last_event_id THEN ordered_after_event_id END AS ordered_after_event_id,
        overlaps_previous,  -- The activity overlaps the work that began before it on its stream.
        since_wait_ns,  -- Time since the last awaited work ended, ns; NULL without awaited work.
        CASE WHEN is_early THEN 0 ELSE launch_ns END AS launch_ns,  -- Minimum latency of a launch on the device, ns.
        gap_ns,  -- Minimum gap on the device, ns.
        waits_for_earlier_work,  -- Work from outside the window ran for most of the time.
        outside_is_inferred,  -- Only an inferred wait shows the work from outside the window.
        -- The activity was launched behind work from outside the window.
        coalesce(held_up_since_launch, FALSE) AS held_up_since_launch,
        -- Reason for the delay of its start: launch, last (the work before it), wait, or start (nothing in the window).
        CASE
            WHEN last_rest <= least(coalesce(wait_rest, last_rest), coalesce(launch_rest, last_rest)) THEN 'last'
            WHEN wait_rest <= coalesce(launch_rest, wait_rest) THEN 'wait'
            WHEN since_launch_ns IS NOT NULL THEN 'launch'
            ELSE 'start'
        END AS bound_by
    FROM rests
),
-- One row: an edge into GPU work, or its own time, in a window with a covering path.
-- How: for each GPU activity of bound_work its own time, its launch, and the work before it.
work_claims AS (
    SELECT
        k.window_no,  -- The window.
        3 AS kind,  -- See _edges.
        -- Eight times the activity's position in the window, plus the edge's number among its edges.
        k.ordinal * 8 AS ordinal,
        k.event_id * 2 AS src_node_id,  -- Source node.
        k.event_id * 2 + 1 AS dst_node_id,  -- Destination node.
        edge_code('OPERATOR_KERNEL') AS edge_code,  -- Type of the edge.
        k.duration_ns AS claim_ns,  -- Part of the elapsed time that the edge claims, ns.
        k.event_id AS attributed_event_id,  -- Event that the edge's time belongs to.
        FALSE AS is_earlier,  -- A wait for GPU work from outside the window.
        FALSE AS is_inferred,  -- A wait that no cuda_sync row records.
        FALSE AS yields  -- Edges that other models add into the same node replace this edge.
    FROM bound_work AS k
    UNION ALL
    SELECT
        k.window_no, 3, k.ordinal * 8 + 1, k.launch_node_id, k.event_id * 2,
        -- The work was launched behind work from outside the window, so the edge is not a launch delay.
        CASE
            WHEN k.bound_by = 'launch' AND (k.waits_for_earlier_work OR k.held_up_since_launch)
                THEN edge_code('KERNEL_KERNEL_DELAY')
            -- By the GPU's clock, the work began before its launch. The time belongs to the operator that the launching
            -- thread was in.
            WHEN c.event_id IS NOT NULL THEN edge_code('OPERATOR_KERNEL')
            ELSE edge_code('KERNEL_LAUNCH_DELAY')
        END,
        CASE WHEN k.bound_by = 'launch' THEN k.since_launch_ns ELSE least(k.launch_ns, k.since_launch_ns) END,
        CASE WHEN NOT (k.waits_for_earlier_work OR coalesce(k.held_up_since_launch, FALSE)) THEN c.event_id END,
        k.bound_by = 'launch' AND k.waits_for_earlier_work,
        k.bound_by = 'launch' AND k.waits_for_earlier_work AND k.outside_is_inferred, FALSE
    FROM bound_work AS k
    -- A separate key that is never NULL: with a condition over k, DuckDB would compare every activity with every call.
    LEFT JOIN _clip AS c
        ON
            c.window_no = k.window_no AND c.is_operator
            AND c.event_id * 2 = CASE WHEN k.is_early THEN k.launch_node_id ELSE -1 - k.event_id END
    WHERE k.since_launch_ns IS NOT NULL
    UNION ALL
    SELECT
        k.window_no, 3, k.ordinal * 8 + 2, k.last_event_id * 2 + 1, k.event_id * 2, edge_code('KERNEL_KERNEL_DELAY'),
        CASE WHEN k.bound_by = 'last' THEN k.since_last_ns ELSE least(k.gap_ns, k.since_last_ns) END, NULL,
        k.bound_by = 'last' AND k.waits_for_earlier_work,
        k.bound_by = 'last' AND k.waits_for_earlier_work AND k.outside_is_inferred, FALSE
    FROM bound_work AS k
    WHERE k.since_last_ns IS NOT NULL AND NOT k.overlaps_last
    UNION ALL
    -- For overlapping work, the time until the second activity begins belongs to the first. The second activity does
    -- not end before the first.
    SELECT
        k.window_no, 3, k.ordinal * 8 + 3, k.last_event_id * 2, k.event_id * 2, edge_code('OPERATOR_KERNEL'),
        k.since_last_ns, k.last_event_id, FALSE, FALSE, FALSE
    FROM bound_work AS k
    WHERE k.overlaps_last
    UNION ALL
    SELECT
        k.window_no, 3, k.ordinal * 8 + 4, k.last_event_id * 2 + 1, k.event_id * 2 + 1, edge_code('DEPENDENCY'), 0,
        NULL, FALSE, FALSE, FALSE
    FROM bound_work AS k
    WHERE k.overlaps_last AND k.ends_after_last
    UNION ALL
    SELECT
        k.window_no, 3, k.ordinal * 8 + 5,
        k.ordered_after_event_id * 2 + CASE WHEN k.overlaps_previous THEN 0 ELSE 1 END,
        k.event_id * 2, edge_code('DEPENDENCY'), 0, NULL, FALSE, FALSE, FALSE
    FROM bound_work AS k
    WHERE k.ordered_after_event_id IS NOT NULL
),
stream_waits AS (
    SELECT
        w.*, k.ordinal, k.bound_by, k.gap_ns, k.since_wait_ns, w.source_end_ns > k.start_ns AS is_late,
        greatest(k.start_ns - w.source_end_ns, 0) AS passed_ns, k.start_ns - w.source_start_ns AS since_start_ns,
        coalesce(k.last_event_id = w.source_event_id OR k.ordered_after_event_id = w.source_event_id, FALSE) AS is_order
    FROM possible_waits AS w
    JOIN bound_work AS k ON k.window_no = w.window_no AND k.event_id = w.event_id
),
-- One row: an edge from GPU work to work on another stream that waited for it, in a window with a covering path.
-- How: from the end of the awaited work. If the clocks show that it had not ended yet, the edge leads from its start,
-- and its time belongs to the awaited work.
wait_claims AS (
    SELECT
        w.window_no,  -- The window.
        4 AS kind,  -- See _edges.
        -- Position in the order of the two events.
        row_number() OVER (PARTITION BY w.window_no ORDER BY w.event_id, w.source_event_id) AS ordinal,
        w.source_event_id * 2 + CASE WHEN w.is_late THEN 0 ELSE 1 END AS src_node_id,  -- Source node.
        w.event_id * 2 AS dst_node_id,  -- Destination node.
        -- Type of the edge.
        CASE
            WHEN w.is_late THEN edge_code('OPERATOR_KERNEL')
            WHEN w.is_inferred THEN edge_code('KERNEL_KERNEL_DELAY')
            ELSE edge_code('SYNC_DEPENDENCY')
        END AS edge_code,
        CASE
            WHEN w.bound_by <> 'wait' OR w.passed_ns > w.since_wait_ns
                THEN CASE WHEN w.is_late THEN 0 ELSE least(w.gap_ns, w.passed_ns) END
            WHEN w.is_late THEN w.since_start_ns
            ELSE w.passed_ns
        END AS claim_ns,  -- Part of the elapsed time that the edge claims, ns.
        -- Event that the edge's time belongs to.
        CASE WHEN w.is_late THEN w.source_event_id END AS attributed_event_id,
        FALSE AS is_earlier,  -- A wait for GPU work from outside the window.
        w.is_inferred,  -- A wait that no cuda_sync row records.
        FALSE AS yields  -- Edges that other models add into the same node replace this edge.
    FROM stream_waits AS w
    WHERE NOT w.is_order
),
roots AS (
    SELECT h.window_no, h.node_id, h.at_ns, FALSE AS is_work
    FROM _host_nodes AS h
    WHERE h.is_root
    UNION ALL
    SELECT k.window_no, k.event_id * 2, k.start_ns - w.start_ns, TRUE
    FROM bound_work AS k
    JOIN _asked_windows AS w ON w.window_no = k.window_no
    WHERE k.bound_by = 'start'
),
ranked AS (
    SELECT
        *,
        row_number() OVER in_time AS ordinal,
        first_value(node_id) OVER in_time AS start_node_id,
        first_value(at_ns) OVER in_time AS start_ns
    FROM roots
    WINDOW in_time AS (PARTITION BY window_no ORDER BY at_ns, node_id)
),
-- One row: an edge from the first node of a window with a covering path to a node without another incoming edge.
-- How: such nodes are the first nodes of threads, and GPU work without a launch and without earlier work. The earliest
-- of these nodes is the first node of the window.
root_claims AS (
    SELECT
        r.window_no,  -- The window.
        6 AS kind,  -- See _edges.
        r.ordinal,  -- Position in time order.
        r.start_node_id AS src_node_id,  -- Source node: the window's first.
        r.node_id AS dst_node_id,  -- Destination node.
        -- Type of the edge.
        CASE WHEN r.is_work THEN edge_code('KERNEL_KERNEL_DELAY') ELSE edge_code('HOST_GAP') END AS edge_code,
        r.at_ns - r.start_ns AS claim_ns,  -- Time that the edge claims, ns: all of the elapsed time.
        CAST(NULL AS BIGINT) AS attributed_event_id,  -- Event that the edge's time belongs to; always NULL.
        r.is_work AS is_earlier,  -- A wait for GPU work from outside the window.
        FALSE AS is_inferred,  -- A wait that no cuda_sync row records.
        TRUE AS yields  -- Edges that other models add into the same node replace this edge.
    FROM ranked AS r
    WHERE r.ordinal > 1
)
SELECT
    window_no,  -- The window.
    kind,  -- See _edges.
    ordinal,  -- Position among the edges of its kind.
    src_node_id,  -- Source node.
    dst_node_id,  -- Destination node.
    edge_code,  -- Type of the edge, in edge_types.
    claim_ns,  -- Part of the elapsed time that the edge claims, ns.
    attributed_event_id,  -- Event that the edge's time belongs to.
    is_earlier,  -- A wait for GPU work from outside the window.
    is_inferred,  -- A wait that no cuda_sync row records.
    yields  -- Edges that other models add into the same node replace this edge.
FROM work_claims
UNION ALL
SELECT
    window_no, kind, ordinal, src_node_id, dst_node_id, edge_code, claim_ns,
    attributed_event_id, is_earlier, is_inferred, yields
FROM wait_claims
UNION ALL
SELECT
    window_no, kind, ordinal, src_node_id, dst_node_id, edge_code, claim_ns,
    attributed_event_id, is_earlier, is_inferred, yields
FROM root_claims
