-- model: _graph_capture_pairs
-- One row: a trace with graph replays and a trace that may show the capture of the graphs: the trace itself, or a trace
-- that the user supplied for it.
-- check: unique(trace_id, capture_trace_id)
SELECT
    trace_id,  -- The trace with the replays.
    trace_id AS capture_trace_id  -- The trace to search.
FROM _graph_sequences
GROUP BY trace_id
UNION
SELECT trace_id, capture_trace_id
FROM _graph_capture_traces;

-- model: _capture_matches
-- One row: a sequence of graph work and a capture with the same number of calls, of the same kinds in the same order,
-- and with the same kernels and grids where the calls name them.
-- How: only sequences in the order of the capture. A capture in the same trace must have ended before the first replay
-- began.
-- check: unique(trace_id, sequence_id, capture_trace_id, capture_id)
WITH sequences AS (
    SELECT s.trace_id, s.sequence_id, s.n_nodes, min(n.start_ns) AS first_ns
    FROM _graph_sequences AS s
    JOIN _graph_nodes AS n ON n.trace_id = s.trace_id AND n.replay_id = s.replay_id
    GROUP BY s.trace_id, s.sequence_id, s.n_nodes
),
captures AS (
    SELECT trace_id, capture_id, stop_ns, count(*) AS n_calls
    FROM _capture_calls
    GROUP BY trace_id, capture_id, stop_ns
),
sized AS (
    SELECT s.trace_id, s.sequence_id, s.n_nodes, c.trace_id AS capture_trace_id, c.capture_id
    FROM sequences AS s
    JOIN _graph_capture_pairs AS p ON p.trace_id = s.trace_id
    JOIN captures AS c ON c.trace_id = p.capture_trace_id AND c.n_calls = s.n_nodes
    WHERE c.trace_id <> s.trace_id OR c.stop_ns <= s.first_ns
)
SELECT
    z.trace_id,  -- The trace with the replays.
    z.sequence_id,  -- The sequence.
    z.capture_trace_id,  -- The trace with the capture.
    z.capture_id,  -- The call that began the capture.
    -- True if all calls name their kernels (HIP); without names, calls are matched by kind and position only.
    min(CASE WHEN n.cat <> 'kernel' OR c.kernel_name IS NOT NULL THEN 1 ELSE 0 END) = 1 AS is_named
FROM sized AS z
JOIN _graph_nodes AS n ON n.trace_id = z.trace_id AND n.replay_id = z.sequence_id AND n.is_ordered
JOIN _capture_calls AS c
    ON c.trace_id = z.capture_trace_id AND c.capture_id = z.capture_id AND c.ordinal = n.ordinal AND c.cat = n.cat
        AND coalesce(c.kernel_name = n.name, TRUE) AND coalesce(c.grid = n.grid, TRUE)
        AND coalesce(c.block = n.block, TRUE)
GROUP BY z.trace_id, z.sequence_id, z.capture_trace_id, z.capture_id, z.n_nodes
HAVING count(*) = z.n_nodes;

-- model: _eager_kernels
-- One row: a GPU activity outside graphs, in a trace that may show the source of a graph, with its position among such
-- activities of its device.
-- How: in the order of the launch calls, which is the order in which a capture records them.
-- check: unique(trace_id, event_id)
WITH wanted AS (
    SELECT DISTINCT capture_trace_id AS trace_id FROM _graph_capture_pairs
)
SELECT
    k.trace_id,  -- The trace.
    k.event_id,  -- The GPU work's position in traceEvents.
    k.launch_event_id,  -- The call that launched it.
    k.device,  -- Device it ran on.
    -- Position among these activities on the device, from 0.
    row_number() OVER (PARTITION BY k.trace_id, k.device ORDER BY l.start_ns, k.start_ns, k.event_id) - 1 AS ordinal,
    k.cat,  -- kernel, gpu_memcpy or gpu_memset.
    k.name,  -- Name of the activity.
    e.args ->> '$."grid"' AS grid,  -- Grid as JSON; NULL where the writer has none.
    e.args ->> '$."block"' AS block,  -- Block as JSON; NULL where the writer has none.
    k.bytes  -- Bytes copied or set; NULL for kernels.
FROM wanted AS w
JOIN kernels AS k ON k.trace_id = w.trace_id
JOIN events AS e ON e.trace_id = k.trace_id AND e.event_id = k.event_id
JOIN events AS l ON l.trace_id = k.trace_id AND l.event_id = k.launch_event_id
LEFT JOIN _graph_nodes AS g ON g.trace_id = k.trace_id AND g.event_id = k.event_id
WHERE g.event_id IS NULL;

-- model: _eager_matches
-- One row: a sequence of graph work and a position where the same work ran outside graphs, in the same order without
-- interruption.
-- How: the occurrences of the sequence's rarest name are the candidates, at most the last 64. The whole sequence must
-- match at the candidate: category, name, and grid, block and bytes where both record them. Sequences of fewer than 4
-- activities or 2 names are excluded, because a match of so few activities is weak evidence.
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
    p.device,  -- Device of that work.
    p.first_ordinal  -- Position in _eager_kernels where the match begins.
FROM places AS p
JOIN nodes AS n ON n.trace_id = p.trace_id AND n.sequence_id = p.sequence_id
JOIN _eager_kernels AS e
    ON e.trace_id = p.capture_trace_id AND e.device = p.device AND e.ordinal = p.first_ordinal + n.ordinal
        AND e.cat = n.cat AND e.name = n.name
        AND coalesce(e.grid = n.grid, TRUE) AND coalesce(e.block = n.block, TRUE) AND coalesce(e.bytes = n.bytes, TRUE)
WHERE p.nearness <= 64
GROUP BY p.trace_id, p.sequence_id, p.capture_trace_id, p.device, p.first_ordinal, p.n_nodes
HAVING count(*) = p.n_nodes;

-- model: _graph_recordings
-- One row: a GPU activity of a sequence and a call that recorded it, or that launched the same work outside graphs,
-- with the operator and module around the call.
-- check: unique(trace_id, sequence_id, ordinal, how, capture_trace_id, place_id, call_event_id)
WITH calls AS (
    SELECT
        m.trace_id, m.sequence_id, c.ordinal, 'capture' AS how,
        CASE WHEN m.is_named THEN 9e-1 ELSE 7e-1 END AS confidence,
        m.capture_trace_id, m.capture_id AS place_id, c.event_id AS call_event_id
    FROM _capture_matches AS m
    JOIN _capture_calls AS c ON c.trace_id = m.capture_trace_id AND c.capture_id = m.capture_id
    UNION ALL
    SELECT
        m.trace_id, m.sequence_id, e.ordinal - m.first_ordinal, 'eager', 8e-1,
        m.capture_trace_id, m.first_ordinal, e.launch_event_id
    FROM _eager_matches AS m
    JOIN _graph_sequences AS s
        ON s.trace_id = m.trace_id AND s.sequence_id = m.sequence_id AND s.replay_id = m.sequence_id
    JOIN _eager_kernels AS e
        ON e.trace_id = m.capture_trace_id AND e.device = m.device AND e.ordinal >= m.first_ordinal
            AND e.ordinal < m.first_ordinal + s.n_nodes
),
-- This query avoids row_number() = 1, because DuckDB 1.5.6 rewrites it into an aggregate, and then fails if it infers
-- that no span is a module.
modules AS (
    SELECT a.trace_id, a.event_id, a.height, s.name
    FROM (SELECT DISTINCT capture_trace_id, call_event_id FROM calls) AS c
    JOIN _host_ancestors AS a ON a.trace_id = c.capture_trace_id AND a.event_id = c.call_event_id
    JOIN _span_events AS s ON s.trace_id = a.trace_id AND s.event_id = a.ancestor_id AND s.kind = 'module'
),
innermost AS (
    SELECT trace_id, event_id, min(height) AS height
    FROM modules
    GROUP BY trace_id, event_id
),
around AS (
    SELECT m.trace_id, m.event_id, m.name
    FROM modules AS m
    JOIN innermost AS i ON i.trace_id = m.trace_id AND i.event_id = m.event_id AND i.height = m.height
)
SELECT
    c.trace_id,  -- The trace with the replays.
    c.sequence_id,  -- The sequence.
    c.ordinal,  -- Position in the sequence, from 0.
    c.how,  -- capture or eager.
    c.confidence,  -- As in graph_kernels.
    c.capture_trace_id,  -- The trace with the call.
    c.place_id,  -- Id of the capture, or position of the match outside graphs.
    c.call_event_id,  -- The call.
    e.name AS op,  -- Operator around the call; NULL where there is none.
    -- Shapes of the operator's arguments, JSON; NULL where they were not recorded.
    coalesce(e.args ->> '$."Input Dims"', e.args ->> '$."Input dims"') AS dims,
    e.args ->> '$."Input type"' AS types,  -- Types of these arguments, JSON; NULL as dims.
    -- Literals of these arguments, JSON; NULL as dims.
    coalesce(e.args ->> '$."Concrete Inputs"', e.args ->> '$."Concrete inputs"') AS concrete,
    -- First position in the sequence of the same run of the operator; NULL without operator.
    CASE
        WHEN o.op_event_id IS NOT NULL
            THEN
            min(c.ordinal) OVER (
                PARTITION BY c.trace_id, c.sequence_id, c.how, c.capture_trace_id, c.place_id, o.op_event_id
            )
    END AS op_ordinal,
    -- GPU activities of that run; NULL without operator.
    CASE
        WHEN o.op_event_id IS NOT NULL
            THEN
            count(*) OVER (
                PARTITION BY c.trace_id, c.sequence_id, c.how, c.capture_trace_id, c.place_id, o.op_event_id
            )
    END AS op_n_kernels,
    m.name AS module  -- Innermost module around the call, as in spans; NULL where there is none.
FROM calls AS c
LEFT JOIN _call_operators AS o ON o.trace_id = c.capture_trace_id AND o.event_id = c.call_event_id
LEFT JOIN events AS e ON e.trace_id = o.trace_id AND e.event_id = o.op_event_id
LEFT JOIN around AS m ON m.trace_id = c.capture_trace_id AND m.event_id = c.call_event_id;
