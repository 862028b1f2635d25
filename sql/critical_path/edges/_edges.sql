-- One row: an edge of the dependency graph of a window, with numeric columns only.
-- How: the edges of all models whose header has `-- part of: _edge_parts`. Ascending edge_id is the order in which HTA
-- inserts them.
-- If the path covers the window, the edges come from all models whose header has `-- part of: _claim_parts`. From
-- _edge_parts, only the edges that other models add (kind 7) are used. An edge's weight is then the part of the elapsed
-- time that it claims. The binding edge of a node claims all of the time, any other edge only its minimum time.
-- edge_id: 2^60 times the kind of the edge (1 lock, 2 call stack, 3 kernel, 4 synchronization, 5 data, 6 inferred, 7
-- any other), plus the edge's position among the edges of its kind. For the call stack, the position is 2^40 times the
-- thread, plus the position on the thread. Edges of kind 7 are numbered here. Two nodes have at most one edge of kind
-- 7, the heaviest, and none if an edge of another kind joins them.
WITH call_waits AS (
    SELECT
        window_no, event_id * 2 + 1 AS dst_node_id, source_end_ns, source_in_window,
        CASE
            WHEN is_recorded THEN at_ns - source_end_ns ELSE greatest(at_ns - source_end_ns, 0)
        END AS remaining_ns,
        is_recorded, is_inferred
    FROM _window_waits
    WHERE is_call AND explains_wait
),
-- A call waited for the work that ended last.
ranked_call_waits AS (
    SELECT
        *,
        row_number() OVER (
            PARTITION BY window_no, dst_node_id ORDER BY source_end_ns DESC, source_in_window DESC
        ) AS choice
    FROM call_waits
),
explained_calls AS (
    SELECT * FROM ranked_call_waits WHERE choice = 1
),
profiled AS (
    SELECT w.window_no, p.blocking_is_always_free, p.zero_from_ns
    FROM _asked_windows AS w
    JOIN _profiles AS p ON p.trace_profile_id = w.trace_profile_id
),
added AS (
    SELECT
        *,
        row_number() OVER (
            PARTITION BY window_no, src_node_id, dst_node_id ORDER BY weight_ns DESC, edge_code, ordinal
        ) AS choice
    FROM _edge_parts
    WHERE kind = 7
),
joined AS (
    SELECT a.window_no, a.src_node_id, a.dst_node_id
    FROM added AS a
    JOIN _edge_parts AS p
        ON p.window_no = a.window_no AND p.src_node_id = a.src_node_id AND p.dst_node_id = a.dst_node_id
    WHERE a.choice = 1 AND p.kind < 7
    UNION ALL
    SELECT a.window_no, a.src_node_id, a.dst_node_id
    FROM added AS a
    JOIN _claim_parts AS p
        ON p.window_no = a.window_no AND p.src_node_id = a.src_node_id AND p.dst_node_id = a.dst_node_id
    WHERE a.choice = 1 AND NOT p.yields
),
-- A node with an added edge needs no yielding edge, because a yielding edge only applies if no other edge is known.
known AS (
    SELECT DISTINCT window_no, dst_node_id FROM added WHERE choice = 1
),
all_edges AS (
    SELECT
        window_no, kind * 1152921504606846976 + ordinal AS edge_id, src_node_id, dst_node_id, edge_code, weight_ns,
        ends_blocking_call, attributed_event_id, is_earlier, is_inferred
    FROM _edge_parts
    WHERE kind < 7
    UNION ALL
    SELECT
        a.window_no,
        8070450532247928832 + row_number() OVER (PARTITION BY a.window_no ORDER BY a.dst_node_id, a.src_node_id),
        a.src_node_id, a.dst_node_id, a.edge_code, a.weight_ns, a.ends_blocking_call, a.attributed_event_id,
        a.is_earlier, a.is_inferred
    FROM added AS a
    LEFT JOIN joined AS j
        ON j.window_no = a.window_no AND j.src_node_id = a.src_node_id AND j.dst_node_id = a.dst_node_id
    WHERE a.choice = 1 AND j.window_no IS NULL
),
-- A wait explains only the time of the call itself, so only edges of a call's own time get a join key. With the edge
-- types in the join condition, DuckDB would compare every edge with every wait.
edges AS (
    SELECT
        e.*,
        CASE
            WHEN e.edge_code = edge_code('OPERATOR_KERNEL') AND e.attributed_event_id = e.dst_node_id // 2
                THEN e.dst_node_id
        END AS call_node_id
    FROM all_edges AS e
)
SELECT
    e.window_no,  -- The window.
    e.edge_id,  -- Number of the edge within the window; ascending in insertion order.
    e.src_node_id,  -- Source node: twice the event, plus 1 for its end.
    e.dst_node_id,  -- Destination node, numbered like the source node.
    CAST(e.edge_code AS INTEGER) AS edge_code,  -- Type of the edge in edge_types.
    -- Weight as measured, ns.
    CASE WHEN e.ends_blocking_call AND p.blocking_is_always_free THEN 0 ELSE e.weight_ns END AS weight_ns,
    CASE
        WHEN e.weight_ns <= p.zero_from_ns OR e.ends_blocking_call AND p.blocking_is_always_free THEN 0
        WHEN c.source_in_window AND NOT c.is_recorded THEN least(e.weight_ns, c.remaining_ns)
        WHEN c.source_in_window AND e.ends_blocking_call THEN 0
        ELSE e.weight_ns
    END AS path_weight_ns,  -- Weight as used on the path, ns.
    e.attributed_event_id,  -- Event that the edge's time belongs to.
    -- The edge is mostly a wait for GPU work from outside the window.
    e.is_earlier OR coalesce(
        NOT c.source_in_window AND 2 * c.remaining_ns <= e.weight_ns, FALSE
    ) AS waits_for_earlier_work,
    -- A wait that no cuda_sync row records, inferred from calls and timing.
    e.is_inferred OR coalesce(
        NOT c.source_in_window AND 2 * c.remaining_ns <= e.weight_ns AND c.is_inferred, FALSE
    ) AS is_inferred
FROM edges AS e
JOIN profiled AS p ON p.window_no = e.window_no
LEFT JOIN explained_calls AS c ON c.window_no = e.window_no AND c.dst_node_id = e.call_node_id
UNION ALL
SELECT
    c.window_no, c.kind * 1152921504606846976 + c.ordinal, c.src_node_id, c.dst_node_id, c.edge_code, c.claim_ns,
    c.claim_ns, c.attributed_event_id, c.is_earlier, c.is_inferred
FROM _claim_parts AS c
LEFT JOIN known AS k
    ON k.window_no = c.window_no AND k.dst_node_id = CASE WHEN c.yields THEN c.dst_node_id END
WHERE k.window_no IS NULL
