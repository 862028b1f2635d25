-- One row: a sequence of graph work and a capture that recorded as many calls of the same kinds in the same order, with
-- the same kernels and grids where the calls name them.
-- How: only where the order of the sequence is that of the capture, and for a capture in the same trace only where it
-- ended before the first replay began.
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
    -- All calls name their kernels (HIP); without names, calls are matched by kind and place only.
    min(CASE WHEN n.cat <> 'kernel' OR c.kernel_name IS NOT NULL THEN 1 ELSE 0 END) = 1 AS is_named
FROM sized AS z
JOIN _graph_nodes AS n ON n.trace_id = z.trace_id AND n.replay_id = z.sequence_id AND n.is_ordered
JOIN _capture_calls AS c
    ON c.trace_id = z.capture_trace_id AND c.capture_id = z.capture_id AND c.ordinal = n.ordinal AND c.cat = n.cat
        AND coalesce(c.kernel_name = n.name, TRUE) AND coalesce(c.grid = n.grid, TRUE)
        AND coalesce(c.block = n.block, TRUE)
GROUP BY z.trace_id, z.sequence_id, z.capture_trace_id, z.capture_id, z.n_nodes
HAVING count(*) = z.n_nodes
