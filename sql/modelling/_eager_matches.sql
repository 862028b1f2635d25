-- One row: a sequence of graph work and a place where the same work ran outside graphs, one piece after another.
-- How: the sequence's rarest name gives the places to try, the last 64 of them; there all of it must be equal:
-- category, name, and, where both have them, grid, block and bytes. Sequences of fewer than 4 pieces or 2 names are
-- left out: the same work in the same order would say little.
-- check: unique(trace_id, sequence_id, capture_trace_id, device, first_ordinal)
WITH nodes AS (
    SELECT n.*, s.sequence_id, s.n_nodes
    FROM _graph_sequences AS s
    JOIN _graph_nodes AS n ON n.trace_id = s.trace_id AND n.replay_id = s.replay_id
    WHERE s.replay_id = s.sequence_id AND s.n_nodes >= threshold('eager_match_nodes')
        AND s.n_names >= threshold('eager_match_names')
),
occurrences AS (
    SELECT trace_id, device, cat, name, count(*) AS n
    FROM _eager_kernels
    GROUP BY trace_id, device, cat, name
),
rarest AS (
    SELECT
        n.trace_id, n.sequence_id, n.ordinal, n.cat, n.name, n.grid, n.block, n.bytes, n.n_nodes,
        o.trace_id AS capture_trace_id, o.device,
        count(*) OVER (PARTITION BY n.trace_id, n.sequence_id, o.trace_id, o.device) AS n_seen,
        row_number() OVER (
            PARTITION BY n.trace_id, n.sequence_id, o.trace_id, o.device ORDER BY o.n, n.ordinal
        ) AS choice
    FROM nodes AS n
    JOIN _graph_capture_pairs AS p ON p.trace_id = n.trace_id
    JOIN occurrences AS o ON o.trace_id = p.capture_trace_id AND o.cat = n.cat AND o.name = n.name
),
places AS (
    SELECT
        r.trace_id, r.sequence_id, r.n_nodes, r.capture_trace_id, r.device, e.ordinal - r.ordinal AS first_ordinal,
        row_number() OVER (
            PARTITION BY r.trace_id, r.sequence_id, r.capture_trace_id, r.device ORDER BY e.ordinal DESC
        ) AS nearness
    FROM rarest AS r
    JOIN _eager_kernels AS e
        ON e.trace_id = r.capture_trace_id AND e.device = r.device AND e.cat = r.cat AND e.name = r.name
            AND coalesce(e.grid = r.grid, TRUE) AND coalesce(e.block = r.block, TRUE)
            AND coalesce(e.bytes = r.bytes, TRUE)
    WHERE r.choice = 1 AND r.n_seen = r.n_nodes
)
SELECT
    p.trace_id,  -- The trace with the replays.
    p.sequence_id,  -- The sequence.
    p.capture_trace_id,  -- The trace with the same work outside graphs.
    p.device,  -- Device that it ran on.
    p.first_ordinal  -- Where it begins in _eager_kernels.
FROM places AS p
JOIN nodes AS n ON n.trace_id = p.trace_id AND n.sequence_id = p.sequence_id
JOIN _eager_kernels AS e
    ON e.trace_id = p.capture_trace_id AND e.device = p.device AND e.ordinal = p.first_ordinal + n.ordinal
        AND e.cat = n.cat AND e.name = n.name
        AND coalesce(e.grid = n.grid, TRUE) AND coalesce(e.block = n.block, TRUE) AND coalesce(e.bytes = n.bytes, TRUE)
WHERE p.nearness <= 64
GROUP BY p.trace_id, p.sequence_id, p.capture_trace_id, p.device, p.first_ordinal, p.n_nodes
HAVING count(*) = p.n_nodes
