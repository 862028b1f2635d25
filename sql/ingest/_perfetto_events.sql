-- One row: an event of a Perfetto trace.
-- How: names, and rows in order. A begin that has its end is a complete event, as Kineto writes it; a category that
-- the writer does not tell comes from perfetto_categories, the kind of a copy from its arguments; work on a GPU has the
-- device as process and the stream as thread.
WITH meant AS (
    SELECT
        o.event_id, o.ph, coalesce(r.category, c.cat) AS cat, coalesce(k.name, r.name) AS name,
        CASE WHEN r.stage IS NULL THEN t.pid ELSE CAST(r.device AS VARCHAR) END AS pid,
        CASE
            WHEN r.stage IS NULL THEN coalesce(t.tid, CAST(r.track AS VARCHAR)) ELSE CAST(r.stream AS VARCHAR)
        END AS tid,
        r.start_ns, o.duration_ns, r.args, o.flow
    FROM _perfetto_order AS o
    -- The number alone tells the row; the time lets a part of the events be read without looking at all rows.
    JOIN _perfetto_rows AS r ON r.n = o.n AND r.at_ns = o.at_ns
    LEFT JOIN _perfetto_tracks AS t ON t.track = r.track
    LEFT JOIN _perfetto_copies AS k
        ON k.told = CASE
                WHEN r.name IN ('Memcpy', 'Memset')
                    THEN CAST(json_array(
                        r.name, r.args ->> '$."copy kind"', r.args ->> '$."src kind"', r.args ->> '$."dst kind"',
                        r.args ->> '$."memory kind"'
                    ) AS VARCHAR)
            END
    -- A condition on `r` alone beside the equations would make DuckDB compare every pair of rows.
    LEFT JOIN _perfetto_categories AS c
        ON c.stage = CASE WHEN r.category IS NULL AND r.ph <> 'E' THEN coalesce(r.stage, '') END
            AND c.name = coalesce(r.name, '')
            AND c.arguments = coalesce(CAST(json_keys(r.args) AS VARCHAR), '')
),
all_events AS (
    SELECT
        event_id, 'M' AS ph, CAST(NULL AS VARCHAR) AS cat, name, pid, tid, CAST(0 AS BIGINT) AS start_ns,
        CAST(NULL AS BIGINT) AS duration_ns, args, CAST(NULL AS BIGINT) AS flow
    FROM _perfetto_names
    UNION ALL
    SELECT
        e.event_id, e.ph, CASE WHEN e.flow IS NULL THEN coalesce(k.canonical, e.cat) ELSE 'ac2g' END,
        CASE WHEN e.flow IS NULL THEN e.name ELSE 'ac2g' END, e.pid, e.tid, e.start_ns, e.duration_ns,
        CASE WHEN e.flow IS NULL THEN e.args END, e.flow
    FROM meant AS e
    LEFT JOIN categories AS k ON k.raw = e.cat
),
told AS (
    SELECT
        *,
        json_transform(args, '{
            "device": "BIGINT", "stream": "BIGINT", "correlation": "BIGINT", "External id": "BIGINT",
            "Python id": "BIGINT", "Python parent id": "BIGINT", "wait_on_stream": "BIGINT",
            "wait_on_cuda_event_record_corr_id": "BIGINT", "wait_on_cuda_event_id": "BIGINT",
            "cuda_sync_kind": "VARCHAR", "graph node id": "BIGINT", "graph id": "BIGINT", "bytes": "BIGINT"
        }') AS arg
    FROM all_events
)
SELECT
    e.event_id,  -- Number: names first, then by time (_perfetto_order).
    e.ph,  -- X complete, B and E without their other half, i instant, s and f arrows, M metadata.
    e.cat,  -- Category; NULL where nothing tells it.
    e.name,  -- Name.
    e.pid,  -- Process id as text; for GPU work the device.
    e.tid,  -- Thread id as text; for GPU work the stream.
    e.start_ns,  -- Start, ns.
    e.duration_ns,  -- Duration, ns.
    e.arg.device AS device,  -- Argument device.
    e.arg.stream AS stream,  -- Argument stream.
    e.arg.correlation AS correlation,  -- Argument correlation.
    e.arg."External id" AS external_id,  -- Argument External id.
    e.arg."Python id" AS python_id,  -- Argument Python id.
    e.arg."Python parent id" AS python_parent_id,  -- Argument Python parent id.
    e.arg.wait_on_stream AS wait_on_stream,  -- Stream whose event is waited for.
    -- Correlation id of the record call waited for.
    e.arg.wait_on_cuda_event_record_corr_id AS wait_on_cuda_event_record_corr_id,
    e.arg.wait_on_cuda_event_id AS wait_on_cuda_event_id,  -- Id of the event waited for.
    e.arg.cuda_sync_kind AS cuda_sync_kind,  -- Kind of a wait.
    e.arg."graph node id" AS graph_node,  -- Node of the graph.
    e.arg."graph id" AS graph_id,  -- Graph.
    e.arg.bytes AS bytes,  -- Bytes copied or set.
    CAST(e.flow AS VARCHAR) AS flow_id,  -- Joins the arrows of a flow.
    CASE WHEN e.ph = 'i' THEN 't' END AS scope,  -- Instants belong to their thread.
    e.args  -- All arguments as JSON.
FROM told AS e
