-- One row: a replay of a graph and the first replay of its trace that ran the same GPU work in the same order.
-- How: replays with equal sums over their work are compared with the first of them, activity by activity.
-- check: unique(trace_id, replay_id)
WITH summed AS (
    SELECT
        trace_id, replay_id, count(*) AS n_nodes, count(DISTINCT name) AS n_names,
        sum(signature_id * (ordinal + 1)) AS by_place,
        sum(signature_id * ((ordinal + 1) * (ordinal + 7) % 9973)) AS by_other_place
    FROM _graph_nodes
    GROUP BY trace_id, replay_id
),
alike AS (
    SELECT
        trace_id, replay_id, n_nodes, n_names,
        min(replay_id) OVER (PARTITION BY trace_id, n_nodes, by_place, by_other_place) AS first_id
    FROM summed
),
compared AS (
    SELECT a.trace_id, a.replay_id, count(*) AS n_same
    FROM alike AS a
    JOIN _graph_nodes AS n ON n.trace_id = a.trace_id AND n.replay_id = a.replay_id
    JOIN _graph_nodes AS f
        ON f.trace_id = a.trace_id AND f.replay_id = a.first_id AND f.ordinal = n.ordinal
            AND f.signature_id = n.signature_id
    GROUP BY a.trace_id, a.replay_id
)
SELECT
    a.trace_id,  -- The trace.
    a.replay_id,  -- The replay.
    -- The first replay of the same work, which represents all of them.
    CASE WHEN c.n_same = a.n_nodes THEN a.first_id ELSE a.replay_id END AS sequence_id,
    a.n_nodes,  -- GPU activities in the replay.
    a.n_names  -- Distinct names of these activities.
FROM alike AS a
LEFT JOIN compared AS c ON c.trace_id = a.trace_id AND c.replay_id = a.replay_id
