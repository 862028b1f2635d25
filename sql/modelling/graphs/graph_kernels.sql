-- model: _graph_periods
-- One row: a sequence of graph work in which a block repeats: a layer of the model, or several layers that alternate.
-- The block contains a kernel, repeats at least three times and covers at least half of the sequence.
-- How: the distances from each activity to the next 16 equal activities are candidate periods. The 64 most frequent
-- periods are tried. The period with the longest unbroken interval of work that equals the work one period later wins.
-- Among equal intervals, the shortest period wins.
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
    period,  -- GPU activities in the block.
    first_ordinal,  -- Position where the first block begins.
    n_covered  -- GPU activities from there that follow the period; the last block may be incomplete.
FROM chosen
WHERE choice = 1 AND period >= threshold('graph_period_least');

-- model: graph_kernels
-- One row: a GPU activity that a replay of a CUDA or HIP graph ran, with its operator, module and layer as far as the
-- trace shows them.
-- How: operator and module come from calls that captured the graph, from the same work in the same order outside graphs
-- (in this trace or in a trace supplied for it), or from annotations in the trace. Layers come from repeating blocks of
-- work. Nothing is interpolated: if the calls that may have recorded the work disagree, the column is NULL. The
-- durations add up to the durations of the same work in kernels.
-- check: unique(trace_id, event_id)
SELECT
    n.trace_id,  -- The trace.
    n.event_id,  -- The GPU work's position in traceEvents.
    n.replay_id,  -- The replay, by the position of its first GPU activity in the file.
    n.launch_event_id,  -- Launch call of the replay; NULL if it is not in the trace.
    n.graph_id,  -- Id of the graph that ran; NULL where the writer has none.
    n.graph_node,  -- Id of the node in the graph; NULL where the writer has none.
    s.sequence_id,  -- First replay with the same work in the same order: equal for all such replays of a trace.
    n.ordinal,  -- Position in the replay, from 0: by node id, else by time.
    s.n_nodes,  -- GPU activities in the replay.
    -- Length of the repeating block; NULL if nothing repeats, or outside of the repetitions.
    p.period,
    -- Number of the repetition, from 0: a layer of the model, or several layers that alternate. This is a guess from
    -- names and grids, and blocks may begin in the middle of a layer. NULL as period.
    (n.ordinal - p.first_ordinal) // p.period AS repetition,
    -- Position in the repetition, from 0; NULL as period.
    (n.ordinal - p.first_ordinal) % p.period AS repetition_ordinal,
    o.op,  -- Name of the operator; NULL where it is unknown.
    -- The program's name for this part of the graph (torch.cuda.graph_annotations), else the innermost module; NULL
    -- where both are unknown.
    coalesce(n.annotation, o.module) AS module,
    o.dims,  -- Shapes of the operator's arguments, JSON; NULL where they are unknown.
    -- Source of the operator or module: capture, eager (the same work outside graphs) or annotation; repetition if only
    -- the layer is guessed; NULL where nothing is known.
    CASE
        WHEN o.op IS NOT NULL THEN o.how
        WHEN n.annotation IS NOT NULL THEN 'annotation'
        WHEN o.module IS NOT NULL THEN o.how
        WHEN p.period IS NOT NULL THEN 'repetition'
    END AS source,
    -- 1: annotation; 0.9: capture whose calls name the kernels; 0.8: eager; 0.7: capture, matched by kind and position
    -- of the calls; 0.5: repetition; NULL where nothing is known. These values are a ranking, not probabilities.
    CASE
        WHEN o.op IS NOT NULL THEN o.confidence
        WHEN n.annotation IS NOT NULL THEN 1e0
        WHEN o.module IS NOT NULL THEN o.confidence
        WHEN p.period IS NOT NULL THEN 5e-1
    END AS confidence,
    o.capture_trace_id,  -- Trace with the call that identifies the operator; NULL without one.
    o.call_event_id,  -- Position of that call in its file; NULL without one.
    k.class,  -- Class, as in kernels.
    k.name,  -- Name of the activity.
    k.device,  -- Device it ran on.
    k.stream,  -- Stream on the device.
    k.start_ns,  -- Start, ns.
    k.duration_ns  -- Duration, ns.
FROM _graph_nodes AS n
JOIN kernels AS k ON k.trace_id = n.trace_id AND k.event_id = n.event_id
JOIN _graph_sequences AS s ON s.trace_id = n.trace_id AND s.replay_id = n.replay_id
LEFT JOIN _graph_periods AS p
    ON p.trace_id = s.trace_id AND p.sequence_id = s.sequence_id AND n.ordinal >= p.first_ordinal
        AND n.ordinal < p.first_ordinal + p.n_covered
LEFT JOIN _graph_operators AS o
    ON o.trace_id = s.trace_id AND o.sequence_id = s.sequence_id AND o.ordinal = n.ordinal;
