-- One row: a GPU activity that a replay of a CUDA or HIP graph ran, with its position in the replay.
-- How: the GPU work of one launch is one replay. Node ids determine its order, because they count nodes in capture
-- order. If ids are missing, or a node ran twice, the order is by time.
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
    -- Annotations have 64-bit ids, with the graph in the upper 32 bits. Cuspy writes only the lower 32 bits
    -- (_cuspy/trace.py).
    LEFT JOIN _graph_node_names AS a
        ON a.trace_id = k.trace_id
            AND a.graph_node = CASE
                WHEN k.graph_node < 4294967296 AND e.graph_id BETWEEN 0 AND 2147483647
                    THEN e.graph_id * 4294967296 + k.graph_node
                ELSE k.graph_node
            END
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
    w.replay_id,  -- The replay, by its first GPU activity in the file.
    w.launch_event_id,  -- Launch call of the replay; NULL if it is not in the trace.
    w.graph_id,  -- Argument graph id; NULL where the writer has none.
    w.graph_node,  -- Argument graph node id; NULL where the writer has none.
    -- Position in the replay, from 0.
    row_number() OVER (
        PARTITION BY w.trace_id, w.replay_id
        ORDER BY CASE WHEN r.is_by_node THEN w.graph_node END, w.start_ns, w.event_id
    ) - 1 AS ordinal,
    -- True if ordinal is the capture order: it is by node ids, or all nodes ran on one stream.
    r.is_ordered,
    w.start_ns,  -- Start, ns.
    w.cat,  -- kernel, gpu_memcpy or gpu_memset.
    w.name,  -- Name of the activity.
    w.grid,  -- Grid as JSON; NULL where the writer has none.
    w.block,  -- Block as JSON; NULL where the writer has none.
    w.bytes,  -- Bytes copied or set; NULL for kernels.
    -- First activity in the file with equal category, name, grid, block and bytes: equal for all such activities of a
    -- trace.
    min(w.event_id) OVER (PARTITION BY w.trace_id, w.cat, w.name, w.grid, w.block, w.bytes) AS signature_id,
    -- The program's name for this part of the graph (torch.cuda.graph_annotations); NULL without one.
    w.annotation
FROM work AS w
JOIN replays AS r ON r.trace_id = w.trace_id AND r.replay_id = w.replay_id
