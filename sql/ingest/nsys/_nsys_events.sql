-- model: _nsys_rows
-- One row: an event of one process of an Nsight Systems export, in no order.
-- How: GPU work, waits and CUDA calls are CUPTI records, as in Kineto's traces, and get Kineto's names and categories.
-- NVTX ranges are operators or annotations (nvtx_categories). Times count from the session's start. A name missing from
-- StringIds is shown as its number, because sums by name would lose work without a name.
WITH work AS (
    SELECT
        w.*,
        CASE w.source
            WHEN 'CUPTI_ACTIVITY_KIND_MEMCPY' THEN 'gpu_memcpy'
            WHEN 'CUPTI_ACTIVITY_KIND_MEMSET' THEN 'gpu_memset'
            ELSE 'kernel'
        END AS cat,
        CASE w.source
            WHEN 'CUPTI_ACTIVITY_KIND_MEMCPY'
                THEN
                'Memcpy ' || coalesce(k.meaning, 'of kind ' || w.copy_kind, '(unknown)')
                || coalesce(' (' || a.meaning || ' -> ' || b.meaning || ')', '')
            WHEN 'CUPTI_ACTIVITY_KIND_MEMSET' THEN 'Memset (' || coalesce(b.meaning, 'Unknown') || ')'
            WHEN 'CUPTI_ACTIVITY_KIND_GRAPH_TRACE'
                THEN 'CUDA graph ' || coalesce(CAST(w.graph AS VARCHAR), '(unknown)') || ' as a whole'
            ELSE coalesce(
                    n.value, s.value, 'kernel ' || coalesce(w.name_id, w.short_name_id) || ' (not in StringIds)',
                    'kernel (no name)'
                )
        END AS name
    FROM _nsys_work AS w
    LEFT JOIN _nsys_strings AS n ON n.id = w.name_id
    LEFT JOIN _nsys_strings AS s ON s.id = w.short_name_id
    LEFT JOIN _nsys_meanings AS k ON k.enum = 'ENUM_CUDA_MEMCPY_OPER' AND k.id = w.copy_kind
    LEFT JOIN _nsys_meanings AS a ON a.enum = 'ENUM_CUDA_MEM_KIND' AND a.id = w.source_memory
    LEFT JOIN _nsys_meanings AS b ON b.enum = 'ENUM_CUDA_MEM_KIND' AND b.id = w.target_memory
),
calls AS (
    -- The suffixes in cudaLaunchKernel_ptsz_v7000 mean per-thread default streams and the version of the interface.
    SELECT
        c.*,
        coalesce(
            regexp_replace(n.value, '(_ptsz|_ptds)?(_v[0-9]+)?$', ''), 'call ' || c.name_id || ' (not in StringIds)',
            'call (no name)'
        ) AS name
    FROM _nsys_calls AS c
    LEFT JOIN _nsys_strings AS n ON n.id = c.name_id
),
ranges AS (
    SELECT r.*, m.meaning, n.cat, n.name, n.sequence, n.sizes
    FROM _nsys_ranges AS r
    LEFT JOIN _nsys_strings AS s ON s.id = r.text_id
    JOIN _range_names AS n
        ON n.text = coalesce(r.text, s.value, 'text ' || r.text_id || ' (not in StringIds)', '(no name)')
    -- Very old exports have no event type: a row with an end is a range.
    JOIN _nsys_meanings AS m
        ON m.enum = 'ENUM_NSYS_EVENT_TYPE'
            AND m.id = coalesce(r.event_type, CASE WHEN r.end_ns IS NULL THEN 34 ELSE 59 END)
            AND m.meaning IN ('range', 'mark')
),
metric_names AS (
    SELECT type_id, metric, min(name) AS name FROM _nsys_metric_names GROUP BY type_id, metric
),
samples AS (
    SELECT
        s.start_ns, s.value AS sampled, g.gpu, g.device,
        coalesce(n.name, 'metric ' || s.metric || ' (not in TARGET_INFO_GPU_METRICS)', 'metric (no name)') AS name
    FROM _nsys_samples AS s
    JOIN _nsys_sampled_gpus AS g ON g.gpu = s.type_id & 255
    LEFT JOIN metric_names AS n ON n.type_id = s.type_id AND n.metric = s.metric
),
all_events AS (
    SELECT
        0 AS place, 'M' AS ph, CAST(NULL AS VARCHAR) AS cat, 'thread_name' AS name, t.thread, NULL AS gpu_row,
        NULL AS start_ns, NULL AS end_ns, CAST(NULL AS BIGINT) AS device, CAST(NULL AS BIGINT) AS stream,
        CAST(NULL AS BIGINT) AS correlation, CAST(NULL AS BIGINT) AS record_stream,
        CAST(NULL AS BIGINT) AS record_correlation, CAST(NULL AS BIGINT) AS cuda_event,
        CAST(NULL AS BIGINT) AS graph_node, CAST(NULL AS BIGINT) AS graph_id, CAST(NULL AS BIGINT) AS bytes,
        CAST(NULL AS VARCHAR) AS own_row, CAST(json_object('name', n.value) AS VARCHAR) AS args
    FROM _nsys_thread_names AS t
    JOIN _nsys_strings AS n ON n.id = t.name_id
    WHERE t.thread IS NOT NULL
    UNION ALL
    SELECT
        1, CASE WHEN meaning = 'mark' THEN 'i' WHEN end_ns IS NULL THEN 'B' ELSE 'X' END, cat, name, thread, FALSE,
        start_ns, CASE WHEN meaning = 'range' THEN end_ns END, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
        -- A range that ends on another thread does not nest with the ranges of its first thread.
        CASE WHEN end_thread <> thread AND end_thread & 16777215 <> 0 THEN ' range' END,
        CASE
            WHEN coalesce(sequence, domain) IS NULL AND sizes IS NULL THEN NULL
            ELSE
                CAST(json_merge_patch(
                    '{}',
                    CASE WHEN sequence IS NULL THEN '{}' ELSE json_object('Sequence number', sequence) END,
                    CASE WHEN json_valid(sizes) THEN json_object('Input Dims', CAST(sizes AS JSON)) ELSE '{}' END,
                    CASE WHEN domain IS NULL THEN '{}' ELSE json_object('domain', domain) END
                ) AS VARCHAR)
        END
    FROM ranges
    UNION ALL
    SELECT
        2, 'X', CASE WHEN regexp_matches(name, '^cu[A-Z]') THEN 'cuda_driver' ELSE 'cuda_runtime' END, name, thread,
        FALSE, start_ns, end_ns, NULL, NULL, correlation, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
        CAST(json_object('correlation', correlation) AS VARCHAR)
    FROM calls
    UNION ALL
    SELECT
        3, 'X', 'cuda_sync', coalesce(kind, 'Sync of type ' || sync_type, 'Sync (unknown)'), NULL, TRUE, start_ns,
        end_ns, device, stream, correlation, record_stream, record_correlation, cuda_event, NULL, NULL, NULL, NULL,
        CAST(json_object('device', device, 'context', context, 'stream', stream, 'correlation', correlation) AS VARCHAR)
    FROM _nsys_event_waits
    UNION ALL
    SELECT
        4, 'X', cat, name, NULL, TRUE, start_ns, end_ns, device, stream, nullif(correlation, 0), NULL, NULL, NULL,
        nullif(graph_node, 0), nullif(graph, 0), bytes, NULL,
        CASE
            WHEN grid_x IS NULL
                THEN CAST(json_object(
                    'device', device, 'context', context, 'stream', stream, 'correlation', correlation, 'bytes', bytes
                ) AS VARCHAR)
            ELSE
                CAST(json_object(
                    'device', device, 'context', context, 'stream', stream, 'correlation', correlation,
                    'registers per thread', registers, 'shared memory', static_shared_bytes + dynamic_shared_bytes,
                    'grid', [grid_x, grid_y, grid_z], 'block', [block_x, block_y, block_z]
                ) AS VARCHAR)
        END
    FROM work
    UNION ALL
    SELECT
        5, 'C', 'gpu_metrics', name, NULL, FALSE, start_ns, NULL, device, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
        NULL, CAST(gpu AS VARCHAR), CAST(json_object('value', sampled) AS VARCHAR)
    FROM samples
)
SELECT
    place,  -- Kind of event: 0 name of a thread, 1 range or mark, 2 call, 3 wait, 4 GPU work, 5 sample of a metric.
    ph,  -- X complete, B begin (a range that was open at the end), i mark, M name of a thread, C sample.
    cat,  -- Kineto's category.
    name,  -- Name.
    thread,  -- Serialized process and thread; NULL on a GPU.
    gpu_row,  -- Whether the event belongs to a device and a stream.
    coalesce(start_ns, -9223372036854775808) AS at_ns,  -- Start, ns; the smallest BIGINT if there is none.
    start_ns,  -- Start, ns since the session's start.
    end_ns,  -- End, ns.
    device,  -- CUDA device of the process.
    stream,  -- Stream.
    correlation,  -- Correlation id.
    record_stream,  -- Stream whose event is waited for.
    record_correlation,  -- Correlation id of the record call waited for.
    cuda_event,  -- CUDA event waited for.
    graph_node,  -- Node of the CUDA graph.
    graph_id,  -- CUDA graph.
    bytes,  -- Bytes copied or set.
    own_row,  -- Suffix of a separate row next to its thread's; for a sample, the number of the GPU; else NULL.
    args  -- Other recorded values, as JSON with Kineto's keys.
FROM all_events;

-- model: _nsys_order
-- One row: an event of an Nsight Systems export and its number.
-- How: order by time. At equal times, calls are in order of correlation id and enclosing events come first.
SELECT
    row_number() OVER (
        ORDER BY
            e.place > 0, e.start_ns NULLS FIRST, e.place, e.correlation NULLS FIRST, e.end_ns DESC NULLS FIRST,
            e.device, e.stream, e.thread, e.graph_node, e.name, e.args
    ) - 1 AS event_id,  -- Number of the event.
    e.rowid AS n,  -- rowid in _nsys_rows.
    e.at_ns  -- at_ns of that row.
FROM _nsys_rows AS e;

-- model: _nsys_events
-- One row: an event of one process of an Nsight Systems export.
SELECT
    o.event_id,  -- Number, by time.
    e.ph,  -- X complete, B begin (a range that was open at the end), i mark, M name of a thread, C sample.
    e.cat,  -- Kineto's category.
    e.name,  -- Name.
    -- Process, or device.
    CASE
        WHEN e.thread IS NOT NULL THEN CAST(e.thread >> 24 & 16777215 AS VARCHAR)
        WHEN e.gpu_row THEN CAST(e.device AS VARCHAR)
        ELSE CAST(s.process_id AS VARCHAR)
    END AS pid,
    -- Thread, or stream.
    CASE
        WHEN e.thread IS NOT NULL THEN CAST(e.thread & 16777215 AS VARCHAR) || coalesce(e.own_row, '')
        ELSE CAST(e.stream AS VARCHAR)
    END AS tid,
    -- Start, ns since 1970; a thread's name has no time.
    CAST(CASE WHEN e.ph = 'M' THEN 0 ELSE e.start_ns END AS HUGEINT) + s.start_ns AS start_ns,
    CAST(e.end_ns AS HUGEINT) - e.start_ns AS duration_ns,  -- Duration, ns.
    e.device,  -- CUDA device of the process.
    e.stream,  -- Stream.
    e.correlation,  -- Correlation id.
    e.record_stream AS wait_on_stream,  -- Stream whose event is waited for.
    e.record_correlation AS wait_on_cuda_event_record_corr_id,  -- Correlation id of the record call waited for.
    e.cuda_event AS wait_on_cuda_event_id,  -- CUDA event waited for.
    CASE WHEN e.cat = 'cuda_sync' THEN e.name END AS cuda_sync_kind,  -- Kind of a wait.
    e.graph_node,  -- Node of the CUDA graph.
    e.graph_id,  -- CUDA graph.
    e.bytes,  -- Bytes copied or set.
    -- Key id, which distinguishes counters with the same name: the GPU.
    CASE WHEN e.ph = 'C' THEN e.own_row END AS flow_id,
    CASE WHEN e.ph = 'i' THEN 't' END AS scope,  -- Marks belong to their thread.
    e.args  -- Other recorded values, as JSON with Kineto's keys.
FROM _nsys_order AS o
-- The number alone identifies the row. With the time, DuckDB can read a part of the events without scanning all rows.
JOIN _nsys_rows AS e ON e.rowid = o.n AND e.at_ns = o.at_ns
CROSS JOIN _nsys_session AS s;
