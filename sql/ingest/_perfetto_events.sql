-- One row: an event of a Perfetto trace.
-- How: begins get the durations of their pairs and then are complete events, as Kineto writes them; a category that
-- the writer does not tell comes from perfetto_categories, the kind of a copy from its arguments; work on a GPU has the
-- device as process and the stream as thread; an arrow starts at the first event that names it.
WITH slices AS (
    SELECT
        r.n, CASE WHEN p.begin_n IS NOT NULL THEN 'X' ELSE r.ph END AS ph, coalesce(r.category, c.cat) AS cat,
        coalesce(k.name, r.name) AS name,
        CASE WHEN r.stage IS NULL THEN t.pid ELSE CAST(r.device AS VARCHAR) END AS pid,
        CASE
            WHEN r.stage IS NULL THEN coalesce(t.tid, CAST(r.track AS VARCHAR)) ELSE CAST(r.stream AS VARCHAR)
        END AS tid,
        r.ts_ns, coalesce(p.dur_ns, r.dur_ns) AS dur_ns, r.args, r.flows, r.ended_flows,
        json_transform(r.args, '{
            "device": "BIGINT", "stream": "BIGINT", "correlation": "BIGINT", "External id": "BIGINT",
            "Python id": "BIGINT", "Python parent id": "BIGINT", "wait_on_stream": "BIGINT",
            "wait_on_cuda_event_record_corr_id": "BIGINT", "wait_on_cuda_event_id": "BIGINT",
            "cuda_sync_kind": "VARCHAR", "graph node id": "BIGINT", "graph id": "BIGINT", "bytes": "BIGINT"
        }') AS arg
    FROM _perfetto_rows AS r
    LEFT JOIN _perfetto_pairs AS p ON p.begin_n = r.n
    LEFT JOIN _perfetto_tracks AS t ON t.track = r.track
    LEFT JOIN _perfetto_copies AS k ON k.n = r.n
    -- A condition on `r` alone beside the equations would make DuckDB compare every pair of rows.
    LEFT JOIN _perfetto_categories AS c
        ON c.stage = CASE WHEN r.category IS NULL AND r.ph <> 'E' THEN coalesce(r.stage, '') END
            AND c.name = coalesce(r.name, '')
            AND c.arguments = coalesce(CAST(json_keys(r.args) AS VARCHAR), '')
    WHERE r.n NOT IN (SELECT e.end_n FROM _perfetto_pairs AS e)
),
flow_ends AS (
    SELECT n, pid, tid, ts_ns, unnest(flows) AS flow, FALSE AS is_end FROM slices
    UNION ALL
    SELECT n, pid, tid, ts_ns, unnest(ended_flows), TRUE FROM slices
),
flows AS (
    SELECT
        n, pid, tid, ts_ns, flow,
        CASE
            WHEN row_number() OVER (PARTITION BY flow ORDER BY is_end, ts_ns, n) = 1 THEN 's' ELSE 'f'
        END AS ph
    FROM flow_ends
),
processes AS (
    SELECT pid, min(process) AS name FROM _perfetto_tracks WHERE pid IS NOT NULL GROUP BY pid
),
all_events AS (
    SELECT
        0 AS place, CAST(NULL AS BIGINT) AS n, 'M' AS ph, CAST(NULL AS VARCHAR) AS cat, 'process_name' AS name, pid,
        CAST(NULL AS VARCHAR) AS tid, CAST(0 AS BIGINT) AS ts_ns, CAST(NULL AS BIGINT) AS dur_ns,
        CAST(json_object('name', name) AS VARCHAR) AS args, CAST(NULL AS BIGINT) AS flow
    FROM processes
    WHERE name IS NOT NULL
    UNION ALL
    SELECT
        1, NULL, 'M', NULL, 'thread_name', pid, tid, 0, NULL, CAST(json_object('name', thread) AS VARCHAR), NULL
    FROM _perfetto_tracks
    WHERE is_thread AND thread IS NOT NULL
    UNION ALL
    SELECT 2, n, ph, cat, name, pid, tid, ts_ns, dur_ns, args, NULL FROM slices
    UNION ALL
    SELECT 3, n, ph, 'ac2g', 'ac2g', pid, tid, ts_ns, NULL, NULL, flow FROM flows
)
SELECT
    -- Number: names first, then by time; at the same time in the order of the file.
    row_number() OVER (
        ORDER BY
            e.place > 1, e.ts_ns NULLS FIRST, e.n, e.place, e.pid, e.tid, e.flow, e.ph,
            e.name, e.args
    ) - 1 AS event_id,
    e.ph,  -- X complete, B and E without their other half, i instant, s and f arrows, M metadata.
    coalesce(k.canonical, e.cat) AS cat,  -- Category; NULL where nothing tells it.
    e.name,  -- Name.
    e.pid,  -- Process id as text; for GPU work the device.
    e.tid,  -- Thread id as text; for GPU work the stream.
    e.ts_ns,  -- Start, ns.
    e.dur_ns,  -- Duration, ns.
    s.arg.device AS device,  -- Argument device.
    s.arg.stream AS stream,  -- Argument stream.
    s.arg.correlation AS correlation,  -- Argument correlation.
    s.arg."External id" AS external_id,  -- Argument External id.
    s.arg."Python id" AS python_id,  -- Argument Python id.
    s.arg."Python parent id" AS python_parent_id,  -- Argument Python parent id.
    s.arg.wait_on_stream AS wait_on_stream,  -- Stream whose event is waited for.
    -- Correlation id of the record call waited for.
    s.arg.wait_on_cuda_event_record_corr_id AS wait_on_cuda_event_record_corr_id,
    s.arg.wait_on_cuda_event_id AS wait_on_cuda_event_id,  -- Id of the event waited for.
    s.arg.cuda_sync_kind AS cuda_sync_kind,  -- Kind of a wait.
    s.arg."graph node id" AS graph_node,  -- Node of the graph.
    s.arg."graph id" AS graph_id,  -- Graph.
    s.arg.bytes AS bytes,  -- Bytes copied or set.
    CAST(e.flow AS VARCHAR) AS flow_id,  -- Joins the arrows of a flow.
    CASE WHEN e.ph = 'i' THEN 't' END AS scope,  -- Instants belong to their thread.
    e.args  -- All arguments as JSON.
FROM all_events AS e
-- For the same reason not `e.place = 2` beside the equation.
LEFT JOIN slices AS s ON s.n = CASE WHEN e.place = 2 THEN e.n END
LEFT JOIN categories AS k ON k.raw = e.cat
