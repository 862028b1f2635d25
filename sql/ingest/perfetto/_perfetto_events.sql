-- model: _perfetto_names
-- One row: the name of a process or a thread of a Perfetto trace.
WITH processes AS (
    SELECT pid, min(process) AS name FROM _perfetto_tracks WHERE pid IS NOT NULL GROUP BY pid
),
named AS (
    SELECT
        'process_name' AS name, pid, CAST(NULL AS VARCHAR) AS tid, CAST(json_object('name', name) AS VARCHAR) AS args
    FROM processes
    WHERE name IS NOT NULL
    UNION ALL
    SELECT 'thread_name', pid, tid, CAST(json_object('name', thread) AS VARCHAR)
    FROM _perfetto_tracks
    WHERE is_thread AND thread IS NOT NULL
)
SELECT
    -- Number of the event; names precede all other events.
    row_number() OVER (ORDER BY name, pid, tid, args) - 1 AS event_id,
    name,  -- process_name or thread_name.
    pid,  -- Process id as text.
    tid,  -- Thread id as text.
    args  -- The name, as JSON.
FROM named;

-- model: _perfetto_sides
-- One row: a position in a run of begin events of a Perfetto trace, with the begin and the end event at that position.
-- How: PyTorch writes all begins of a kind in sequence, then their ends in the same order, so time jumps back between
-- them. In such a run, the k-th end belongs to the k-th begin.
WITH sides AS (
    SELECT
        run, place, max(n) FILTER (WHERE ph = 'B') AS begin_n, max(n) FILTER (WHERE ph = 'E') AS end_n,
        max(start_ns) FILTER (WHERE ph = 'B') AS begin_ns, max(start_ns) FILTER (WHERE ph = 'E') AS end_ns,
        max(track) FILTER (WHERE ph = 'B') AS begin_track, max(track) FILTER (WHERE ph = 'E') AS end_track
    FROM _perfetto_rows
    WHERE ph IN ('B', 'E') AND start_ns IS NOT NULL
    GROUP BY run, place
),
runs AS (
    SELECT run
    FROM sides
    GROUP BY run
    HAVING
        (count(begin_n) = 1 OR (count(end_n) <= count(begin_n) AND max(begin_ns) > min(end_ns)))
        AND bool_and(begin_track = end_track AND end_ns >= begin_ns)
)
SELECT
    s.begin_n,  -- Number of the begin event; NULL for an end event alone.
    s.end_n,  -- The end event.
    s.begin_ns,  -- Time of the begin, ns.
    s.end_ns,  -- Time of the end, ns.
    s.begin_track,  -- Track of the begin.
    s.end_track,  -- Track of the end.
    r.run IS NOT NULL AND s.begin_n + s.end_n IS NOT NULL AS is_pair  -- Whether begin and end form a pair.
FROM sides AS s
LEFT JOIN runs AS r ON r.run = s.run;

-- model: _perfetto_categories
-- One row: a kind of event without a recorded category in a Perfetto trace, with its category.
-- How: the first rule of perfetto_categories that matches the stage, the arguments and the name.
WITH kinds AS (
    SELECT DISTINCT
        coalesce(stage, '') AS stage, coalesce(name, '') AS name,
        coalesce(CAST(json_keys(args) AS VARCHAR), '') AS arguments
    FROM _perfetto_rows
    WHERE category IS NULL AND ph <> 'E'
),
ranked AS (
    SELECT
        k.*, r.cat,
        row_number() OVER (PARTITION BY k.stage, k.name, k.arguments ORDER BY r.rule_order) AS place
    FROM kinds AS k
    JOIN perfetto_categories AS r
        ON coalesce(r.stage, '') = k.stage
            AND (r.argument IS NULL OR contains(', ' || trim(k.arguments, '[]') || ', ', ', ' || r.argument || ', '))
            AND regexp_matches(k.name, r.name_pattern)
)
SELECT
    stage,  -- Render stage; empty string for slices.
    name,  -- Name; empty string if the event has none.
    arguments,  -- Names of the arguments.
    cat  -- The category.
FROM ranked
WHERE place = 1;

-- model: _perfetto_pairs
-- One row: a begin event of a Perfetto trace and its end event, or either of them without the other.
-- How: _perfetto_sides pairs events by position. An end without such a pair closes the last open begin of its track, by
-- time.
WITH others AS (
    SELECT begin_n AS n, 'B' AS ph, begin_track AS track, begin_ns AS start_ns, 1 AS change
    FROM _perfetto_sides
    WHERE begin_n IS NOT NULL AND NOT is_pair
    UNION ALL
    SELECT end_n, 'E', end_track, end_ns, -1
    FROM _perfetto_sides
    WHERE end_n IS NOT NULL AND NOT is_pair
),
stacked AS (
    SELECT
        *,
        sum(change) OVER (PARTITION BY track ORDER BY start_ns, n ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)
        + CASE WHEN ph = 'E' THEN 1 ELSE 0 END AS depth
    FROM others
),
nested AS (
    SELECT
        n, ph, start_ns, lag(ph) OVER level AS last_ph, lead(n) OVER level AS next_n, lead(ph) OVER level AS next_ph,
        lead(start_ns) OVER level AS next_ns
    FROM stacked
    WINDOW level AS (PARTITION BY track, depth ORDER BY start_ns, n)
)
SELECT
    begin_n,  -- Number of the begin event; NULL for an end event alone.
    end_n,  -- Number of its end event; NULL for a begin event alone.
    begin_ns AS at_ns,  -- Start, ns; for an end event alone, its time; the smallest BIGINT if unknown.
    end_ns - begin_ns AS duration_ns  -- Time from begin to end, ns; NULL without a pair.
FROM _perfetto_sides
WHERE is_pair
UNION ALL
SELECT n, CASE WHEN next_ph = 'E' THEN next_n END, start_ns, CASE WHEN next_ph = 'E' THEN next_ns - start_ns END
FROM nested
WHERE ph = 'B'
UNION ALL
SELECT NULL, n, start_ns, NULL
FROM nested
WHERE ph = 'E' AND last_ph IS DISTINCT FROM 'B'
UNION ALL
SELECT CASE WHEN ph = 'B' THEN n END, CASE WHEN ph = 'E' THEN n END, at_ns, NULL
FROM _perfetto_rows
WHERE ph IN ('B', 'E') AND start_ns IS NULL;

-- model: _perfetto_arrows
-- One row: an end of a flow arrow in a Perfetto trace. An arrow starts at the first event that names it.
WITH starts AS (
    SELECT n, at_ns, start_ns, flows, ended_flows
    FROM _perfetto_rows
    WHERE
        len(flows) + len(ended_flows) > 0
        -- An end event with a begin event is part of that event.
        AND (ph <> 'E' OR n IN (SELECT p.end_n FROM _perfetto_pairs AS p WHERE p.begin_n IS NULL))
),
flow_ends AS (
    SELECT n, at_ns, start_ns, unnest(flows) AS flow, FALSE AS is_end FROM starts
    UNION ALL
    SELECT n, at_ns, start_ns, unnest(ended_flows), TRUE FROM starts
)
SELECT
    n,  -- Row of _perfetto_rows to which the arrow is attached.
    at_ns,  -- at_ns of that row.
    flow,  -- Flow id; joins the ends of an arrow.
    -- s for a start, f for an end.
    CASE WHEN row_number() OVER (PARTITION BY flow ORDER BY is_end, start_ns, n) = 1 THEN 's' ELSE 'f' END AS ph
FROM flow_ends;

-- model: _perfetto_order
-- One row: an event of a Perfetto trace except names: a slice, an arrow's end at a slice, an instant, or a GPU
-- activity.
-- How: order by time, then by position in the file, with arrows after their slice. Only the columns that decide the
-- order are sorted, because whole rows would not fit in memory.
WITH events AS (
    SELECT n, at_ns, ph, duration_ns, CAST(NULL AS BIGINT) AS flow
    FROM _perfetto_rows
    WHERE ph NOT IN ('B', 'E')
    UNION ALL
    SELECT
        coalesce(begin_n, end_n), at_ns, CASE WHEN end_n IS NULL THEN 'B' WHEN begin_n IS NULL THEN 'E' ELSE 'X' END,
        duration_ns, NULL
    FROM _perfetto_pairs
    UNION ALL
    SELECT n, at_ns, ph, NULL, flow FROM _perfetto_arrows
),
names AS (
    SELECT count(*) AS n_names FROM _perfetto_names
)
SELECT
    -- Number of the event; names precede these events.
    s.n_names + row_number() OVER (ORDER BY e.at_ns, e.n, e.flow NULLS FIRST, e.ph) - 1 AS event_id,
    e.n,  -- Row of _perfetto_rows: the event, or the event at the arrow's end.
    e.at_ns,  -- at_ns of that row.
    e.ph,  -- X complete, B or E without its counterpart, i instant, s and f arrows.
    e.duration_ns,  -- Duration, ns.
    e.flow  -- Flow id; joins the ends of an arrow; NULL for other events.
FROM events AS e
CROSS JOIN names AS s;

-- model: _perfetto_events
-- One row: an event of a Perfetto trace.
-- How: names first, then rows in order. A begin with its end is a complete event, as in Kineto's traces. A missing
-- category comes from perfetto_categories. The kind of a copy comes from its arguments. GPU work has the device as
-- process and the stream as thread.
WITH meant AS (
    SELECT
        o.event_id, o.ph, coalesce(r.category, c.cat) AS cat, coalesce(k.name, r.name) AS name,
        CASE WHEN r.stage IS NULL THEN t.pid ELSE CAST(r.device AS VARCHAR) END AS pid,
        CASE
            WHEN r.stage IS NULL THEN coalesce(t.tid, CAST(r.track AS VARCHAR)) ELSE CAST(r.stream AS VARCHAR)
        END AS tid,
        r.start_ns, o.duration_ns, r.args, o.flow
    FROM _perfetto_order AS o
    -- The number alone identifies the row. With the time, DuckDB can read a part of the events without scanning all
    -- rows.
    JOIN _perfetto_rows AS r ON r.n = o.n AND r.at_ns = o.at_ns
    LEFT JOIN _perfetto_tracks AS t ON t.track = r.track
    LEFT JOIN _perfetto_copies AS k
        ON k.kind_key = CASE
                WHEN r.name IN ('Memcpy', 'Memset')
                    THEN CAST(json_array(
                        r.name, r.args ->> '$."copy kind"', r.args ->> '$."src kind"', r.args ->> '$."dst kind"',
                        r.args ->> '$."memory kind"'
                    ) AS VARCHAR)
            END
    -- With a condition on `r` alone next to the equations, DuckDB would compare every pair of rows.
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
parsed AS (
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
    e.ph,  -- X complete, B or E without its counterpart, i instant, s and f arrows, M metadata.
    e.cat,  -- Category; NULL if not recorded.
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
    CAST(e.flow AS VARCHAR) AS flow_id,  -- Flow id; joins the ends of an arrow.
    CASE WHEN e.ph = 'i' THEN 't' END AS scope,  -- Instants belong to their thread.
    e.args  -- All arguments as JSON.
FROM parsed AS e;
