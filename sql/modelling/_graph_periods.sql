-- One row: a sequence of graph work in which a block repeats, at least three times and over at least half of the
-- sequence, with a kernel in it: a layer of the model, or several that alternate.
-- How: distances from each piece of work to the next 16 like it are possible periods, the 64 most frequent are tried.
-- The period wins after which work is like itself over the longest unbroken stretch; of equal ones, the shortest.
-- check: unique(trace_id, sequence_id)
WITH nodes AS (
    SELECT
        n.trace_id, s.sequence_id, s.n_nodes, n.ordinal, n.signature_id, n.cat,
        row_number() OVER (PARTITION BY n.trace_id, s.sequence_id, n.signature_id ORDER BY n.ordinal) AS occurrence
    FROM _graph_sequences AS s
    JOIN _graph_nodes AS n ON n.trace_id = s.trace_id AND n.replay_id = s.replay_id
    WHERE
        s.replay_id = s.sequence_id
        AND s.n_nodes >= threshold('graph_period_repeats') * threshold('graph_period_least')
),
further AS (
    SELECT v.n
    FROM (VALUES (1), (2), (3), (4), (5), (6), (7), (8), (9), (10), (11), (12), (13), (14), (15), (16)) AS v (n)
),
gaps AS (
    SELECT a.trace_id, a.sequence_id, a.n_nodes, b.ordinal - a.ordinal AS period, count(*) AS n_pairs
    FROM nodes AS a
    CROSS JOIN further AS f
    JOIN nodes AS b
        ON b.trace_id = a.trace_id AND b.sequence_id = a.sequence_id AND b.signature_id = a.signature_id
            AND b.occurrence = a.occurrence + f.n
    GROUP BY a.trace_id, a.sequence_id, a.n_nodes, b.ordinal - a.ordinal
),
ranked AS (
    SELECT
        trace_id, sequence_id, period,
        row_number() OVER (PARTITION BY trace_id, sequence_id ORDER BY n_pairs DESC, period) AS choice
    FROM gaps
    WHERE threshold('graph_period_repeats') * period <= n_nodes
),
alike AS (
    SELECT
        a.trace_id, a.sequence_id, a.n_nodes, r.period, a.ordinal, a.cat,
        a.ordinal - row_number() OVER (PARTITION BY a.trace_id, a.sequence_id, r.period ORDER BY a.ordinal) AS stretch
    FROM ranked AS r
    JOIN nodes AS a ON a.trace_id = r.trace_id AND a.sequence_id = r.sequence_id
    JOIN nodes AS b
        ON b.trace_id = a.trace_id AND b.sequence_id = a.sequence_id AND b.ordinal = a.ordinal + r.period
            AND b.signature_id = a.signature_id
    WHERE r.choice <= 64
),
stretches AS (
    SELECT
        trace_id, sequence_id, n_nodes, period, min(ordinal) AS first_ordinal, count(*) + period AS n_covered
    FROM alike
    GROUP BY trace_id, sequence_id, n_nodes, period, stretch
    HAVING count(*) FILTER (WHERE cat = 'kernel') > 0
),
chosen AS (
    SELECT
        trace_id, sequence_id, n_nodes, period, first_ordinal, n_covered,
        row_number() OVER (
            PARTITION BY trace_id, sequence_id ORDER BY n_covered DESC, period, first_ordinal
        ) AS choice
    FROM stretches
    WHERE
        n_covered >= threshold('graph_period_repeats') * period
        AND n_covered >= threshold('graph_period_cover') * n_nodes
)
SELECT
    trace_id,  -- The trace.
    sequence_id,  -- The sequence.
    period,  -- Pieces of GPU work in the block.
    first_ordinal,  -- Where the first block begins.
    n_covered  -- Pieces of GPU work from there that follow the period; the last block may be cut short.
FROM chosen
WHERE choice = 1 AND period >= threshold('graph_period_least')
