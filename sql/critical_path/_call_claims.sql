-- One row: an edge into a node of a host thread, in a window that the path covers.
-- part of: _claim_parts
-- How: from the node before it or another thread, and from the GPU work that a call waited for.
WITH ranked AS (
    SELECT
        *,
        row_number() OVER (
            PARTITION BY window_no, event_id ORDER BY source_end_ns DESC, source_in_window DESC, source_event_id
        ) AS choice
    FROM _call_waits
    WHERE has_waited
),
asked AS (
    SELECT window_no, event_id, duration_ns, FALSE AS is_launch FROM _clip WHERE is_blocking
    UNION ALL
    SELECT DISTINCT window_no, event_id, end_ns - start_ns, TRUE FROM _call_waits WHERE is_launch
),
bound AS (
    SELECT a.window_no, a.event_id, a.duration_ns, e.name, r.event_id IS NOT NULL AS has_waited, a.is_launch
    FROM asked AS a
    JOIN critical_path_windows AS w ON w.window_no = a.window_no AND w.covers_window
    JOIN events AS e ON e.trace_id = w.trace_id AND e.event_id = a.event_id
    LEFT JOIN ranked AS r ON r.window_no = a.window_no AND r.event_id = a.event_id AND r.choice = 1
),
needs AS (
    SELECT
        window_no, name,
        coalesce(
            min(CASE WHEN NOT has_waited AND NOT is_launch THEN duration_ns END),
            CAST(avg(CASE WHEN NOT has_waited AND is_launch AND duration_ns <= 20000 THEN duration_ns END) AS BIGINT)
        ) AS need_ns,
        min(CASE WHEN NOT has_waited AND NOT is_launch THEN duration_ns END) AS blocking_ns
    FROM bound
    GROUP BY window_no, name
),
least_needs AS (
    SELECT window_no, min(blocking_ns) AS need_ns FROM needs GROUP BY window_no
),
-- One row: a call of a window that the path covers which waited for GPU work, and what of its time that explains.
-- How: it waited for whatever ended last. Without any wait it would have taken as long as the shortest call of its name
-- that waited for nothing; where all of its name waited, as the shortest call of any name that did not, and where all
-- did, 3 us; and no less than what it took after the work had ended, where that is its own time (over 50 us: cudaFree
-- waits and then frees). A launch takes as long as those of its name do on average that found room in the queue (20 us
-- at most).
-- A call that is neither blocking nor a launch waits for nothing, whatever row names it; and one that took no longer
-- than such a call takes when it waits for nothing was not held up by the wait.
bound_calls AS (
    SELECT
        r.window_no,  -- The window.
        r.event_id,  -- The call.
        r.event_id * 2 + 1 AS node_id,  -- Its end.
        r.source_event_id,  -- GPU work that it waited for.
        r.source_in_window,  -- That belongs to the window.
        greatest(r.end_ns - r.source_end_ns, 0) AS remaining_ns,  -- From the end of that work to the call's, ns.
        -- What the call takes when it waits for nothing, ns.
        greatest(
            coalesce(n.need_ns, l.need_ns, 3000),
            CASE WHEN r.end_ns - r.source_end_ns > 50000 THEN r.end_ns - r.source_end_ns ELSE 0 END
        ) AS need_ns
    FROM ranked AS r
    JOIN bound AS c ON c.window_no = r.window_no AND c.event_id = r.event_id
    LEFT JOIN needs AS n ON n.window_no = c.window_no AND n.name = c.name
    LEFT JOIN least_needs AS l ON l.window_no = r.window_no
    WHERE r.choice = 1 AND (c.is_launch OR c.duration_ns > coalesce(n.need_ns, l.need_ns, 0))
),
-- Materialized, as in _call_waits: DuckDB may otherwise join each loop with each window of its trace first.
window_calls AS MATERIALIZED (
    SELECT c.window_no, w.trace_profile_id, c.event_id, c.start_ns, c.duration_ns
    FROM _clip AS c
    JOIN critical_path_windows AS w ON w.window_no = c.window_no AND w.covers_window
    WHERE c.is_operator
),
asking AS MATERIALIZED (
    SELECT
        f.window_no, f.start_ns AS first_ns, p.last_event_id, p.source_event_id, p.source_end_ns, p.has_waited
    FROM _poll_loops AS p
    JOIN window_calls AS f ON f.trace_profile_id = p.trace_profile_id AND f.event_id = p.event_id
),
-- One row: a loop of calls that asked until GPU work had ended (_poll_loops), in a window that the path covers.
-- How: by its last call, which goes on when the work has ended. Those before it are no part of the graph (_left_out).
poll_waits AS (
    SELECT
        c.window_no,  -- The window.
        c.event_id,  -- The last call.
        c.event_id * 2 AS node_id,  -- Its start.
        c.start_ns,  -- The time of that, ns.
        c.start_ns - min(p.first_ns) AS asked_ns,  -- Time since the first call of the loop in the window, ns.
        -- The part of that in which the loop did not ask but did something else, 0 to 1, going by the last call's
        -- length.
        greatest(
            1.0 - (count(*) - 1) * c.duration_ns / greatest(c.start_ns - min(p.first_ns), 1), 0.0
        ) AS pause_share,
        p.source_event_id,  -- GPU work that the loop waited for.
        k.start_ns AS source_start_ns,  -- Its start, ns; NULL outside the window.
        p.source_end_ns,  -- Its end, ns.
        k.event_id IS NOT NULL AS source_in_window,  -- It belongs to the window.
        p.has_waited  -- FALSE: the loop's first call found it done.
    FROM asking AS p
    JOIN window_calls AS c ON c.window_no = p.window_no AND c.event_id = p.last_event_id
    LEFT JOIN _kernel_nodes AS k ON k.window_no = p.window_no AND k.event_id = p.source_event_id
    LEFT JOIN _left_out AS o ON o.window_no = c.window_no AND o.event_id = c.event_id
    WHERE
        o.event_id IS NULL AND (k.start_ns IS NULL OR k.start_ns <= c.start_ns)
        AND (p.has_waited OR p.source_end_ns <= c.start_ns)
    GROUP BY
        c.window_no, c.event_id, c.start_ns, c.duration_ns, p.source_event_id, k.start_ns, p.source_end_ns, k.event_id,
        p.has_waited
),
-- One row: an edge into a node of a host thread, in a window that the path covers.
-- How: the edges of _host_edges. Where a call waited for work of the window, its own edge claims no more than it needs
-- when it waits for nothing, and never all of the time; where it waited for work of before the window, its time is that
-- work's. Before the last call of a loop that asked until work had ended, only the time until the loop began counts.
host_claims AS (
    SELECT
        h.window_no,  -- The window.
        2 AS kind,  -- See _edges.
        h.ordinal,  -- Place in the window.
        h.src_node_id,  -- Source node.
        h.dst_node_id,  -- Destination node.
        h.edge_code,  -- Type of the edge.
        -- What the edge claims of the time that passed, ns.
        CASE
            WHEN b.source_in_window THEN least(h.claim_ns, b.need_ns, greatest(h.elapsed_ns - 1, 0))
            WHEN p.source_in_window THEN greatest(h.elapsed_ns - greatest(p.asked_ns, 1), 0)
            ELSE h.claim_ns
        END AS claim_ns,
        h.attributed_event_id,  -- Event whose time it is.
        -- A wait for GPU work from outside the window.
        coalesce(
            NOT b.source_in_window AND 2 * b.remaining_ns <= h.elapsed_ns,
            NOT p.source_in_window AND 2 * p.asked_ns >= h.elapsed_ns, FALSE
        ) AS is_earlier,
        h.is_inferred,  -- A hand-off between threads that nothing but the times shows.
        h.is_inferred AS yields  -- It gives way to edges that other models add.
    FROM _host_edges AS h
    LEFT JOIN bound_calls AS b ON b.window_no = h.window_no AND b.node_id = h.dst_node_id
    LEFT JOIN poll_waits AS p ON p.window_no = h.window_no AND p.node_id = h.dst_node_id AND p.has_waited
),
returns AS (
    SELECT window_no, min(remaining_ns) AS least_ns
    FROM bound_calls
    WHERE source_in_window AND remaining_ns <= 50000
    GROUP BY window_no
),
call_returns AS (
    SELECT
        w.*,
        CASE
            WHEN b.event_id IS NULL AND w.is_inferred AND NOT w.is_launch AND w.end_ns - w.start_ns > 50000
                THEN w.end_ns - w.start_ns
            ELSE coalesce(b.remaining_ns, r.least_ns, 2000)
        END AS remaining_ns, w.source_end_ns > w.end_ns AS is_late,
        coalesce(b.source_event_id = w.source_event_id, FALSE) AS has_bound,
        greatest(w.end_ns - w.source_end_ns, 0) AS passed_ns
    FROM _call_waits AS w
    LEFT JOIN bound_calls AS b ON b.window_no = w.window_no AND b.event_id = w.event_id
    LEFT JOIN returns AS r ON r.window_no = w.window_no
    LEFT JOIN _left_out AS o ON o.window_no = w.window_no AND o.event_id = w.event_id
    WHERE w.source_in_window AND o.event_id IS NULL
),
-- One row: an edge from GPU work to the end of a call that waited for it, or found it done, in a window that the path
-- covers.
-- How: the call returns a little after the work that ended last; what it takes beyond 50 us is its own time. Where it
-- found the work done, the edge claims the shortest return of the window (2 us where there is none), or all of it where
-- that is its own time: cudaFree takes as long after a wait as it did without one. From the work's start, as its own
-- time, where clocks say that it had not ended yet.
return_claims AS (
    SELECT
        w.window_no,  -- The window.
        5 AS kind,  -- See _edges.
        row_number() OVER (PARTITION BY w.window_no ORDER BY w.event_id, w.source_event_id) AS ordinal,  -- Place.
        w.source_event_id * 2 + CASE WHEN w.is_late THEN 0 ELSE 1 END AS src_node_id,  -- Source node.
        w.event_id * 2 + 1 AS dst_node_id,  -- Destination node.
        -- Type of the edge.
        CASE
            WHEN w.is_late OR least(w.passed_ns, w.remaining_ns) > 50000 THEN t.operator_kernel
            ELSE t.sync_dependency
        END AS edge_code,
        CASE
            WHEN w.is_late AND w.has_bound THEN w.end_ns - w.source_start_ns
            WHEN w.is_late THEN 0
            ELSE least(w.passed_ns, w.remaining_ns)
        END AS claim_ns,  -- What the edge claims of the time that passed, ns.
        -- Event whose time it is.
        CASE WHEN w.is_late THEN w.source_event_id ELSE w.event_id END AS attributed_event_id,
        FALSE AS is_earlier,  -- A wait for GPU work from outside the window.
        w.is_inferred,  -- A wait that no cuda_sync row shows.
        FALSE AS yields  -- It gives way to edges that other models add.
    FROM call_returns AS w
    CROSS JOIN _edge_codes AS t
),
polling AS (
    SELECT
        window_no, event_id, node_id, source_event_id, source_start_ns, start_ns, has_waited,
        source_end_ns > start_ns AS is_late, greatest(start_ns - source_end_ns, 0) AS passed_ns,
        sum(CASE WHEN has_waited THEN pause_share ELSE 0 END) OVER (
            PARTITION BY window_no ORDER BY start_ns, event_id ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        ) AS pauses,
        CASE WHEN has_waited THEN pause_share ELSE 0 END AS pause_share,
        coalesce(
            min(CASE WHEN has_waited THEN greatest(start_ns - source_end_ns, 0) END) OVER (PARTITION BY window_no), 0
        ) AS least_ns
    FROM poll_waits
    WHERE source_in_window
),
poll_ends AS (
    SELECT *, has_waited AND NOT is_late AND floor(pauses) > floor(pauses - pause_share) AS is_pause FROM polling
),
gap_codes AS (
    SELECT max(edge_code) AS host_gap FROM edge_types WHERE edge_type = 'HOST_GAP'
),
-- One row: an edge from GPU work to the call with which a loop that asked for it went on, in a window that the path
-- covers.
-- How: from the end of the work; from its start, as its own time, where the call had begun by then. Where the first
-- call found the work done, the edge claims the shortest time that a loop of the window took to see it.
-- How late a loop sees it is chance, up to the time from one call to the next: a part of that is the call's own, the
-- rest what the loop does in between. So of a window's loops that share has edges of host time, and the others the
-- call's.
poll_claims AS (
    SELECT
        w.window_no,  -- The window.
        5 AS kind,  -- See _edges.
        -- Place, behind the edges of calls that wait themselves.
        1099511627776 + row_number() OVER (PARTITION BY w.window_no ORDER BY w.event_id) AS ordinal,
        w.source_event_id * 2 + CASE WHEN w.is_late THEN 0 ELSE 1 END AS src_node_id,  -- Source node.
        w.node_id AS dst_node_id,  -- Destination node.
        -- Type of the edge.
        CASE
            WHEN w.is_late THEN t.operator_kernel
            WHEN NOT w.has_waited THEN t.sync_dependency
            WHEN w.is_pause THEN g.host_gap
            ELSE t.operator_kernel
        END AS edge_code,
        -- What the edge claims of the time that passed, ns.
        CASE
            WHEN NOT w.has_waited THEN least(w.passed_ns, w.least_ns)
            WHEN w.is_late THEN w.start_ns - w.source_start_ns
            ELSE w.passed_ns
        END AS claim_ns,
        -- Event whose time it is.
        CASE WHEN w.is_late THEN w.source_event_id WHEN NOT w.is_pause THEN w.event_id END AS attributed_event_id,
        FALSE AS is_earlier,  -- A wait for GPU work from outside the window.
        TRUE AS is_inferred,  -- No cuda_sync row shows what a call asks for.
        FALSE AS yields  -- It gives way to edges that other models add.
    FROM poll_ends AS w
    CROSS JOIN _edge_codes AS t
    CROSS JOIN gap_codes AS g
)
SELECT
    window_no,  -- The window.
    kind,  -- See _edges.
    ordinal,  -- Place among the edges of its kind.
    src_node_id,  -- Source node.
    dst_node_id,  -- Destination node.
    edge_code,  -- Type of the edge, in edge_types.
    claim_ns,  -- What the edge claims of the time that passed, ns.
    attributed_event_id,  -- Event whose time it is.
    is_earlier,  -- A wait for GPU work from outside the window.
    is_inferred,  -- A wait that no cuda_sync row shows.
    yields  -- It gives way to edges that other models add.
FROM host_claims
UNION ALL
SELECT
    window_no, kind, ordinal, src_node_id, dst_node_id, edge_code, claim_ns,
    attributed_event_id, is_earlier, is_inferred, yields
FROM return_claims
UNION ALL
SELECT
    window_no, kind, ordinal, src_node_id, dst_node_id, edge_code, claim_ns,
    attributed_event_id, is_earlier, is_inferred, yields
FROM poll_claims
