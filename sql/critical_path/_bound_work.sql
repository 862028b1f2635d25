-- One row: a piece of GPU work of a window that the path covers, with what held up its start.
-- How: a launch holds work up for at least the least latency of the device, work before it on the stream and waits for
-- at least the least gap. Whatever would have let it start last is what bound it; its edge claims all of the time, the
-- others the least.
WITH
-- One row: a call that launched more than one piece of GPU work: a CUDA or HIP graph.
-- How: count the work of each launch.
graph_launches AS (
    SELECT
        h.trace_profile_id,  -- The trace as a profile sees it.
        h.launch_event_id,  -- The call.
        min(h.start_ns) AS first_ns  -- Start of the first of its work, ns.
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
        min(h.start_ns - h.launch_ts_ns) AS earliest_ns
    FROM launched_work AS h
    GROUP BY h.trace_profile_id, h.device, h.is_graph
),
known_floors AS (
    SELECT
        f.trace_profile_id, f.device, f.is_graph,
        CASE
            WHEN f.launch_ns <= CASE WHEN f.is_graph THEN 100000 ELSE 20000 END THEN f.launch_ns ELSE 5000
        END AS launch_ns,
        CASE
            WHEN f.earliest_ns < 0 THEN f.earliest_ns
            WHEN f.launch_ns <= CASE WHEN f.is_graph THEN 100000 ELSE 20000 END THEN f.launch_ns
            ELSE 5000
        END AS earliest_ns,
        CASE WHEN g.gap_ns <= 2000 THEN g.gap_ns ELSE 1000 END AS gap_ns
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
        avg(CASE WHEN gap_rest_ns > 50000 AND launch_rest_ns <= 20000 THEN launch_rest_ns END) AS launch_spread_ns,
        avg(CASE WHEN launch_rest_ns > 50000 AND gap_rest_ns BETWEEN 0 AND 5000 THEN gap_rest_ns END) AS gap_spread_ns
    FROM left_over
    GROUP BY trace_profile_id, device, is_graph
),
-- One row: a device of a trace and a kind of launch (of one piece of work, or of a graph), with how long it takes at
-- least, the gap between neighbours of a stream, and how much either varies.
-- How: the smallest of each that is not negative, over the whole trace. Where a device never did either at once, the
-- smallest gap (above 2 us) or latency (above 20 us, of a graph 100 us) says nothing, and 1 us or 5 us is taken, as on
-- most devices. A launch surely held up work that began long after the work before it, which surely held up what was
-- launched long before.
device_floors AS (
    SELECT
        f.trace_profile_id,  -- The trace as a profile sees it.
        f.device,  -- The device.
        f.is_graph,  -- Launches of graphs.
        f.launch_ns,  -- Least time from the start of a call to the start of what it launched, ns.
        f.earliest_ns,  -- The same, negative where clocks disagree and work began before its launch, ns.
        f.gap_ns,  -- Least time from the end of work to the start of the next on its stream, ns.
        -- By how much launches take longer, ns.
        greatest(coalesce(s.launch_spread_ns, 3000), 1000) AS launch_spread_ns,
        greatest(coalesce(s.gap_spread_ns, 1000), 200) AS gap_spread_ns  -- By how much gaps are longer, ns.
    FROM known_floors AS f
    LEFT JOIN spreads AS s
        ON s.trace_profile_id = f.trace_profile_id AND s.device = f.device AND s.is_graph = f.is_graph
),
asked AS (
    SELECT window_no, trace_profile_id FROM critical_path_windows WHERE covers_window
),
-- A wait is none where that work ended later, by more than clocks disagree.
waits AS (
    SELECT w.window_no, w.event_id, max(w.source_end_ns) AS waited_until_ns
    FROM _possible_waits AS w
    GROUP BY w.window_no, w.event_id
),
-- Edges never go back in time: from work that had not ended by then, the time since its start counts. Where work began
-- before its launch, because clocks disagree, its edge comes from what the launching thread had passed by then.
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
        -- Later work of a graph follows the first, and what was launched long before the stream was free follows that.
        g.first_ns < k.start_ns
        -- (What it overlaps is taken to end when it begins; work that the trace does not have, when what waited for it
        -- began.)
        OR greatest(
            CASE WHEN k.outside_end_ns < k.start_ns THEN k.outside_end_ns END,
            CASE WHEN k.last_end_ns > k.start_ns THEN k.start_ns ELSE k.last_end_ns END
        )
        > k.launch_ts_ns + f.launch_ns + CAST(least(4 * f.launch_spread_ns, 20000) AS BIGINT)
            AS is_launched_before,
        CASE
            WHEN k.last_event_id IS NOT NULL THEN k.start_ns - coalesce(k.overlapped_ts_ns, k.last_end_ns)
        END AS since_last_ns,
        CASE WHEN v.waited_until_ns IS NOT NULL THEN greatest(k.start_ns - v.waited_until_ns, 0) END AS since_wait_ns,
        coalesce(f.launch_ns, 0) AS launch_ns, f.earliest_ns, f.launch_spread_ns, f.gap_spread_ns
    FROM _kernel_nodes AS k
    JOIN asked AS w ON w.window_no = k.window_no
    LEFT JOIN waits AS v ON v.window_no = k.window_no AND v.event_id = k.event_id
    LEFT JOIN _early_work AS y ON y.window_no = k.window_no AND y.event_id = k.event_id
    LEFT JOIN graph_launches AS g
        ON g.trace_profile_id = w.trace_profile_id AND g.launch_event_id = k.launch_event_id
    LEFT JOIN device_floors AS f
        ON f.trace_profile_id = w.trace_profile_id AND f.device = k.device
            AND f.is_graph = (g.launch_event_id IS NOT NULL)
),
-- What is left of the time after the least of each.
rests AS (
    SELECT
        *,
        CASE
            WHEN since_launch_ns IS NULL OR is_launched_before AND (since_last_ns >= 0 OR since_wait_ns >= 0) THEN NULL
            ELSE (latency_ns - least(latency_ns, earliest_ns)) / launch_spread_ns
        END AS launch_rest,
        CASE
            WHEN overlapped_ts_ns IS NULL THEN since_last_ns - least(since_last_ns, gap_ns)
            -- What was launched before the work that it overlaps began follows that; what was not, its launch.
            WHEN latency_ns - launch_ns < since_last_ns THEN since_last_ns
            ELSE 0
        END / gap_spread_ns AS last_rest,
        (since_wait_ns - least(since_wait_ns, gap_ns)) / gap_spread_ns AS wait_rest
    FROM possible
)
SELECT
    window_no,  -- The window.
    ordinal,  -- Place in time order.
    event_id,  -- The GPU work.
    start_ns,  -- Start, ns.
    duration_ns,  -- Duration, ns.
    launch_node_id,  -- The start of the call that launched it; a node before it where clocks disagree.
    since_launch_ns,  -- Time since that node, ns; NULL where it is no node of the window.
    is_early,  -- It began before its launch, because clocks disagree.
    last_event_id,  -- Work before it on its stream or in its graph.
    since_last_ns,  -- Time since that ended, or began where both overlap, ns; NULL where there is none.
    overlapped_ts_ns IS NOT NULL AS overlaps_last,  -- It began before that work ended.
    last_end_ns <= start_ns + duration_ns AS ends_after_last,  -- It ends after that work.
    -- Other work on its stream that it follows.
    CASE WHEN ordered_after_event_id <> last_event_id THEN ordered_after_event_id END AS ordered_after_event_id,
    overlaps_previous,  -- That has not ended when it begins.
    since_wait_ns,  -- Time since the last work that it waited for ended, ns; NULL where it waited for none.
    CASE WHEN is_early THEN 0 ELSE launch_ns END AS launch_ns,  -- Least latency of a launch on its device, ns.
    gap_ns,  -- Least gap on its device, ns.
    waits_for_earlier_work,  -- Work from outside the window ran for most of the time.
    coalesce(held_up_since_launch, FALSE) AS held_up_since_launch,  -- It was launched behind such work.
    -- What held it up: launch, last (the work before it), wait, or start (nothing in the window).
    CASE
        WHEN last_rest <= least(coalesce(wait_rest, last_rest), coalesce(launch_rest, last_rest)) THEN 'last'
        WHEN wait_rest <= coalesce(launch_rest, wait_rest) THEN 'wait'
        WHEN since_launch_ns IS NOT NULL THEN 'launch'
        ELSE 'start'
    END AS bound_by
FROM rests
