-- One row: a device of a trace and a kind of launch (of one piece of work, or of a graph), with how long it takes at
-- least, the gap between neighbours of a stream, and how much either varies.
-- How: the smallest of each that is not negative, over the whole trace. Where a device never did either at once, the
-- smallest gap (above 2 us) or latency (above 20 us, of a graph 100 us) says nothing, and 1 us or 5 us is taken, as on
-- most devices. A launch surely held up work that began long after the work before it, which surely held up what was
-- launched long before.
WITH work AS (
    SELECT
        h.trace_profile_id, h.device, h.start_ns, h.launch_ts_ns, h.busy_until_ns,
        g.launch_event_id IS NOT NULL AS is_graph
    FROM _gpu_history AS h
    JOIN _profiles AS p ON p.trace_profile_id = h.trace_profile_id
    LEFT JOIN _graph_launches AS g
        ON g.trace_profile_id = h.trace_profile_id AND g.launch_event_id = h.launch_event_id
    WHERE p.covers_window
),
gaps AS (
    SELECT
        h.trace_profile_id, h.device,
        min(CASE WHEN h.start_ns >= h.busy_until_ns THEN h.start_ns - h.busy_until_ns END) AS gap_ns
    FROM work AS h
    GROUP BY h.trace_profile_id, h.device
),
floors AS (
    SELECT
        h.trace_profile_id, h.device, h.is_graph,
        min(CASE WHEN h.start_ns >= h.launch_ts_ns THEN h.start_ns - h.launch_ts_ns END) AS launch_ns,
        min(h.start_ns - h.launch_ts_ns) AS earliest_ns
    FROM work AS h
    GROUP BY h.trace_profile_id, h.device, h.is_graph
),
known AS (
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
rests AS (
    SELECT
        h.trace_profile_id, h.device, h.is_graph, h.start_ns - h.launch_ts_ns - f.earliest_ns AS launch_rest_ns,
        h.start_ns - h.busy_until_ns - f.gap_ns AS gap_rest_ns
    FROM work AS h
    JOIN known AS f ON f.trace_profile_id = h.trace_profile_id AND f.device = h.device AND f.is_graph = h.is_graph
),
spreads AS (
    SELECT
        trace_profile_id, device, is_graph,
        avg(CASE WHEN gap_rest_ns > 50000 AND launch_rest_ns <= 20000 THEN launch_rest_ns END) AS launch_spread_ns,
        avg(CASE WHEN launch_rest_ns > 50000 AND gap_rest_ns BETWEEN 0 AND 5000 THEN gap_rest_ns END) AS gap_spread_ns
    FROM rests
    GROUP BY trace_profile_id, device, is_graph
)
SELECT
    f.trace_profile_id,  -- The trace as a profile sees it.
    f.device,  -- The device.
    f.is_graph,  -- Launches of graphs.
    f.launch_ns,  -- Least time from the start of a call to the start of what it launched, ns.
    f.earliest_ns,  -- The same, negative where clocks disagree and work began before its launch, ns.
    f.gap_ns,  -- Least time from the end of work to the start of the next on its stream, ns.
    greatest(coalesce(s.launch_spread_ns, 3000), 1000) AS launch_spread_ns,  -- By how much launches take longer, ns.
    greatest(coalesce(s.gap_spread_ns, 1000), 200) AS gap_spread_ns  -- By how much gaps are longer, ns.
FROM known AS f
LEFT JOIN spreads AS s
    ON s.trace_profile_id = f.trace_profile_id AND s.device = f.device AND s.is_graph = f.is_graph
