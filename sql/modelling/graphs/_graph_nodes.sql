-- One row: a GPU activity that a replay of a CUDA or HIP graph ran, with its place in the replay.
-- How: GPU work of one launch is one replay. Its order is that of the graph's node ids, which count nodes as they were
-- captured; where some are missing or one ran twice, it is the order of time.
-- check: unique(trace_id, event_id)
WITH work AS (
    SELECT
        k.trace_id, k.event_id, k.cat, k.name, k.stream, k.start_ns, k.launch_event_id, k.graph_node, e.graph_id,
        k.bytes,
        e.args ->> '$."grid"' AS grid,
        e.args ->> '$."block"' AS block,
        coalesce(e.args ->> '$."name"', e.args ->> '$."str"', e.args ->> '$."annotation"', a.name) AS annotation,
        min(k.event_id) OVER (PARTITION BY k.trace_id, k.launch_event_id, k.correlation) AS replay_id
    FROM kernels AS k
    JOIN events AS e ON e.trace_id = k.trace_id AND e.event_id = k.event_id
    LEFT JOIN events AS l ON l.trace_id = k.trace_id AND l.event_id = k.launch_event_id
    LEFT JOIN _graph_node_names AS a ON a.trace_id = k.trace_id AND a.graph_node = k.graph_node
    WHERE k.graph_node IS NOT NULL OR contains(l.name, 'GraphLaunch')
),
replays AS (
    SELECT
        trace_id, replay_id, count(*) = count(DISTINCT graph_node) AS is_by_node,
        count(*) = count(DISTINCT graph_node) OR count(DISTINCT stream) = 1 AS is_ordered
    FROM work
    GROUP BY trace_id, replay_id
)
SELECT
    w.trace_id,  -- The trace.
    w.event_id,  -- The GPU work's position in traceEvents.
    w.replay_id,  -- The replay: its first GPU activity in the file.
    w.launch_event_id,  -- The call that launched the replay; NULL when it is not in the trace.
    w.graph_id,  -- Argument graph id; NULL where the writer has none.
    w.graph_node,  -- Argument graph node id; NULL where the writer has none.
    -- Place in the replay, from 0.
    row_number() OVER (
        PARTITION BY w.trace_id, w.replay_id
        ORDER BY CASE WHEN r.is_by_node THEN w.graph_node END, w.start_ns, w.event_id
    ) - 1 AS ordinal,
    -- That is the order in which nodes were captured: by node ids, or all of them ran on one stream.
    r.is_ordered,
    w.start_ns,  -- Start, ns.
    w.cat,  -- kernel, gpu_memcpy or gpu_memset.
    w.name,  -- Name.
    w.grid,  -- Grid as JSON; NULL where the writer has none.
    w.block,  -- Block as JSON; NULL where the writer has none.
    w.bytes,  -- Bytes copied or set; NULL for kernels.
    -- Same for GPU work of equal category, name, grid, block and bytes in a trace: the first of it in the file.
    min(w.event_id) OVER (PARTITION BY w.trace_id, w.cat, w.name, w.grid, w.block, w.bytes) AS signature_id,
    -- What the program called this part of the graph (torch.cuda.graph_annotations); NULL where it did not.
    w.annotation
FROM work AS w
JOIN replays AS r ON r.trace_id = w.trace_id AND r.replay_id = w.replay_id
