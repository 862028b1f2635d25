-- One row: GPU work of a CUDA graph and work of the same launch that it depends on, if the trace records the graph's
-- edges (Cuspy with enable_graph_dependencies, PyTorch PR 190850).
-- How: an edge is an arrow of category ac2g between two GPU activities. The arrow begins at the end of one activity and
-- ends at the start of the other, on the rows on which they are drawn. An edge may lead through nodes that are not GPU
-- work (event records, host functions); up to two such nodes in a row are followed. Only work without dependencies has
-- an arrow from its launch.
WITH nodes AS (
    SELECT
        e.trace_id, e.event_id, e.pid, e.tid, e.start_ns, e.end_ns, e.correlation,
        coalesce(s.side = 'gpu', FALSE) AS is_work
    FROM events AS e
    LEFT JOIN category_sides AS s ON s.cat = e.cat
    WHERE
        e.graph_node > 0 AND e.correlation > 0 AND e.duration_ns IS NOT NULL AND e.start_ns IS NOT NULL
        AND (s.side = 'gpu' OR e.cat IN ('graph_event_node', 'graph_host_node'))
),
arrows AS (
    SELECT trace_id, flow_id, ph, pid, tid, start_ns
    FROM events
    WHERE ph IN ('s', 'f') AND cat = 'ac2g' AND trace_id IN (SELECT n.trace_id FROM nodes AS n)
),
sources AS (
    SELECT n.trace_id, n.event_id, n.correlation, n.is_work, a.flow_id
    FROM nodes AS n
    JOIN arrows AS a
        ON a.trace_id = n.trace_id AND a.pid = n.pid AND a.tid = n.tid AND a.start_ns = n.end_ns AND a.ph = 's'
),
targets AS (
    SELECT n.trace_id, n.event_id, n.correlation, n.is_work, a.flow_id
    FROM nodes AS n
    JOIN arrows AS a
        ON a.trace_id = n.trace_id AND a.pid = n.pid AND a.tid = n.tid AND a.start_ns = n.start_ns AND a.ph = 'f'
),
graph_edges AS (
    SELECT DISTINCT
        t.trace_id, t.correlation, t.event_id, t.is_work, s.event_id AS source_event_id, s.is_work AS source_is_work
    FROM targets AS t
    JOIN sources AS s
        ON s.trace_id = t.trace_id AND s.flow_id = t.flow_id AND s.correlation = t.correlation
            AND s.event_id <> t.event_id
),
through_one AS (
    SELECT
        t.trace_id, t.correlation, t.event_id, t.is_work, s.source_event_id, s.source_is_work
    FROM graph_edges AS t
    JOIN graph_edges AS s ON s.trace_id = t.trace_id AND s.event_id = t.source_event_id
    WHERE NOT t.source_is_work
),
through_two AS (
    SELECT t.trace_id, t.correlation, t.event_id, t.is_work, s.source_event_id, s.source_is_work
    FROM through_one AS t
    JOIN graph_edges AS s ON s.trace_id = t.trace_id AND s.event_id = t.source_event_id
    WHERE NOT t.source_is_work
),
roots AS (
    SELECT DISTINCT t.trace_id, t.event_id
    FROM targets AS t
    JOIN graph_edges AS g ON g.trace_id = t.trace_id AND g.correlation = t.correlation
    WHERE t.is_work AND t.flow_id = CAST(t.correlation AS VARCHAR)
),
found AS (
    SELECT trace_id, event_id, source_event_id FROM graph_edges WHERE is_work AND source_is_work
    UNION
    SELECT trace_id, event_id, source_event_id FROM through_one WHERE is_work AND source_is_work
    UNION
    SELECT trace_id, event_id, source_event_id FROM through_two WHERE is_work AND source_is_work
)
SELECT
    trace_id,  -- The trace.
    event_id,  -- Work of a graph.
    source_event_id  -- Work that must end first; NULL if the work depends on the launch alone.
FROM found
UNION ALL
SELECT r.trace_id, r.event_id, NULL
FROM roots AS r
LEFT JOIN found AS f ON f.trace_id = r.trace_id AND f.event_id = r.event_id
WHERE f.event_id IS NULL
