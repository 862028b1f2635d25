-- One row: a piece of GPU work that ran outside graphs, in a trace that may show what graphs were captured from, with
-- its place among such work of its device.
-- How: in the order of the launching calls, which is that in which a capture records them.
-- check: unique(trace_id, event_id)
WITH wanted AS (
    SELECT DISTINCT capture_trace_id AS trace_id FROM _graph_capture_pairs
)
SELECT
    k.trace_id,  -- The trace.
    k.event_id,  -- The GPU work's position in traceEvents.
    k.launch_event_id,  -- The call that launched it.
    k.device,  -- Device it ran on.
    -- Place among them, from 0.
    row_number() OVER (PARTITION BY k.trace_id, k.device ORDER BY l.start_ns, k.start_ns, k.event_id) - 1 AS ordinal,
    k.cat,  -- kernel, gpu_memcpy or gpu_memset.
    k.name,  -- Name.
    e.args ->> '$."grid"' AS grid,  -- Grid as JSON; NULL where the writer has none.
    e.args ->> '$."block"' AS block,  -- Block as JSON; NULL where the writer has none.
    k.bytes  -- Bytes copied or set; NULL for kernels.
FROM wanted AS w
JOIN kernels AS k ON k.trace_id = w.trace_id
JOIN events AS e ON e.trace_id = k.trace_id AND e.event_id = k.event_id
JOIN events AS l ON l.trace_id = k.trace_id AND l.event_id = k.launch_event_id
LEFT JOIN _graph_nodes AS g ON g.trace_id = k.trace_id AND g.event_id = k.event_id
WHERE g.event_id IS NULL
