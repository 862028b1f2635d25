-- model: _rocm_devices
-- One row: an agent (CPU or GPU) of rocprofiler-sdk's output, with its device number in traces.
SELECT
    id AS agent,  -- Agent id, as in the rows of GPU work.
    -- Number among the GPUs, as in Kineto's deviceProperties; if not recorded, the GPU's rank by agent id; NULL for a
    -- CPU.
    CASE
        WHEN kind = 'GPU' THEN coalesce(type_index, row_number() OVER (PARTITION BY kind ORDER BY id) - 1)
    END AS device
FROM (
    SELECT id, kind, type_index
    FROM _rocm_agents
    WHERE id IS NOT NULL
    QUALIFY row_number() OVER (PARTITION BY id ORDER BY kind DESC NULLS LAST, type_index) = 1
) AS a;

-- model: _rocm_rows
-- One row: an event of one process of rocprofiler-sdk's output, a rocpd database or its CSV files, in no order.
-- How: dispatches and copies get the names and categories that Kineto uses on AMD GPUs. HIP calls are runtime calls, as
-- in Kineto's traces. ROCTx ranges are operators or annotations (nvtx_categories). Times count from the machine's
-- start.
WITH copies AS (
    SELECT w.*, regexp_replace(coalesce(w.name, n.value), '^MEMORY_COPY_', '') AS direction
    FROM _rocm_work AS w
    LEFT JOIN _rocm_strings AS n ON n.id = w.name_id
    WHERE w.source = 'copy'
),
work AS (
    SELECT
        w.start_ns, w.end_ns, w.agent, w.stream, w.queue, w.event, w.correlation, NULL AS bytes, 'kernel' AS cat,
        coalesce(
            w.name, k.display_name, k.mangled_name, 'kernel ' || w.kernel || ' (no name)', 'kernel (no name)'
        ) AS name,
        -- rocprofiler-sdk counts the grid in threads, Kineto in blocks.
        CAST(ceil(CAST(w.grid_x AS DOUBLE) / greatest(w.block_x, 1)) AS HUGEINT) AS blocks_x,
        CAST(ceil(CAST(w.grid_y AS DOUBLE) / greatest(w.block_y, 1)) AS HUGEINT) AS blocks_y,
        CAST(ceil(CAST(w.grid_z AS DOUBLE) / greatest(w.block_z, 1)) AS HUGEINT) AS blocks_z, w.block_x, w.block_y,
        w.block_z, coalesce(w.registers, k.registers) AS registers, w.group_bytes
    FROM _rocm_work AS w
    LEFT JOIN _rocm_kernels AS k ON k.id = w.kernel
    WHERE w.source = 'kernel'
    UNION ALL
    SELECT
        c.start_ns, c.end_ns, CASE WHEN m.device_side = 'target' THEN c.target_agent ELSE c.agent END, c.stream,
        c.queue, c.event, c.correlation, c.bytes, 'gpu_memcpy',
        'Memcpy ' || coalesce(m.meaning, c.direction, '(unknown)'), NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
    FROM copies AS c
    LEFT JOIN rocm_copies AS m ON m.direction = c.direction
),
on_gpu AS (
    SELECT
        w.start_ns, w.end_ns, w.bytes, w.cat, w.name, w.blocks_x, w.blocks_y, w.blocks_z, w.block_x, w.block_y,
        w.block_z, w.registers, w.group_bytes, CASE WHEN d.agent IS NULL THEN w.agent ELSE d.device END AS device,
        coalesce(w.stream, w.queue) AS stream, w.queue, coalesce(w.correlation, e.correlation) AS correlation
    FROM work AS w
    LEFT JOIN _rocm_devices AS d ON d.agent = w.agent
    LEFT JOIN _rocm_event_details AS e ON e.id = w.event
),
threads AS (
    SELECT id, min(thread) AS thread, min(name) AS name
    FROM _rocm_threads
    WHERE id IS NOT NULL
    GROUP BY id
),
calls AS (
    SELECT
        c.* EXCLUDE (thread, cat, name), coalesce(t.thread, c.thread) AS thread, coalesce(n.cat, c.cat) AS cat,
        coalesce(n.name, c.name) AS name, n.sequence, n.sizes
    FROM _rocm_calls_named AS c
    LEFT JOIN threads AS t ON t.id = c.thread
    -- With a condition on `c` alone next to the equation, DuckDB would compare every pair of rows.
    LEFT JOIN _range_names AS n ON n.text = CASE WHEN c.cat = 'range' THEN c.name END
),
all_events AS (
    SELECT
        0 AS place, 'M' AS ph, CAST(NULL AS VARCHAR) AS cat, 'thread_name' AS name, coalesce(thread, id) AS thread,
        FALSE AS gpu_row, CAST(NULL AS BIGINT) AS start_ns, CAST(NULL AS BIGINT) AS end_ns,
        CAST(NULL AS BIGINT) AS device, CAST(NULL AS BIGINT) AS stream, CAST(NULL AS BIGINT) AS correlation,
        CAST(NULL AS BIGINT) AS bytes, '' AS own_row, CAST(json_object('name', name) AS VARCHAR) AS args
    FROM threads
    WHERE name IS NOT NULL
    UNION ALL
    SELECT
        CASE WHEN cat LIKE 'cuda%' THEN 2 ELSE 1 END, CASE WHEN is_mark AND cat NOT LIKE 'cuda%' THEN 'i' ELSE 'X' END,
        cat, name, thread, FALSE, start_ns, CASE WHEN is_mark AND cat NOT LIKE 'cuda%' THEN NULL ELSE end_ns END,
        NULL, NULL, CASE WHEN cat LIKE 'cuda%' THEN correlation END, NULL,
        CASE WHEN is_of_process THEN ' range' ELSE '' END,
        CASE
            WHEN cat LIKE 'cuda%' THEN CAST(json_object('correlation', correlation) AS VARCHAR)
            WHEN sequence IS NULL AND sizes IS NULL THEN NULL
            ELSE
                CAST(json_merge_patch(
                    CASE WHEN sequence IS NULL THEN '{}' ELSE json_object('Sequence number', sequence) END,
                    CASE WHEN json_valid(sizes) THEN json_object('Input Dims', CAST(sizes AS JSON)) ELSE '{}' END
                ) AS VARCHAR)
        END
    FROM calls
    UNION ALL
    SELECT
        4, 'X', cat, name, NULL, TRUE, start_ns, end_ns, device, stream, nullif(correlation, 0), bytes, '',
        CASE
            WHEN blocks_x IS NULL
                THEN CAST(json_object(
                    'device', device, 'stream', stream, 'queue', queue, 'correlation', correlation, 'bytes', bytes
                ) AS VARCHAR)
            ELSE
                CAST(json_object(
                    'device', device, 'stream', stream, 'queue', queue, 'correlation', correlation,
                    'registers per thread', registers, 'shared memory', group_bytes,
                    'grid', [blocks_x, blocks_y, blocks_z], 'block', [block_x, block_y, block_z]
                ) AS VARCHAR)
        END
    FROM on_gpu
)
SELECT
    place,  -- Kind of event: 0 name of a thread, 1 range or mark, 2 call, 4 GPU work.
    ph,  -- X complete, i mark, M name of a thread.
    cat,  -- Kineto's category.
    name,  -- Name.
    thread,  -- Thread; NULL on a GPU.
    gpu_row,  -- Whether the event belongs to a device and a stream.
    coalesce(start_ns, -9223372036854775808) AS at_ns,  -- Start, ns; the smallest BIGINT if there is none.
    start_ns,  -- Start, ns since the machine's start.
    end_ns,  -- End, ns.
    device,  -- Number of the GPU.
    stream,  -- HIP stream; the queue if the stream was not recorded.
    correlation,  -- Correlation id.
    bytes,  -- Bytes copied.
    own_row,  -- Suffix of a separate row next to its thread's; else empty.
    args  -- Other recorded values, as JSON with Kineto's keys.
FROM all_events;

-- model: _rocm_order
-- One row: an event of rocprofiler-sdk's output and its number.
-- How: order by time. At equal times, calls are in order of correlation id and enclosing events come first.
SELECT
    row_number() OVER (
        ORDER BY
            e.place > 0, e.start_ns NULLS FIRST, e.place, e.correlation NULLS FIRST, e.end_ns DESC NULLS FIRST,
            e.device, e.stream, e.thread, e.name, e.args
    ) - 1 AS event_id,  -- Number of the event.
    e.rowid AS n,  -- rowid in _rocm_rows.
    e.at_ns  -- at_ns of that row.
FROM _rocm_rows AS e;

-- model: _rocm_events
-- One row: an event of one process of rocprofiler-sdk's output: a rocpd database, or its CSV files.
SELECT
    o.event_id,  -- Number, by time.
    e.ph,  -- X complete, i mark, M name of a thread.
    e.cat,  -- Kineto's category.
    e.name,  -- Name.
    CAST(CASE WHEN e.gpu_row THEN e.device ELSE s.process_id END AS VARCHAR) AS pid,  -- Process, or device.
    -- Thread, or stream.
    CASE WHEN e.gpu_row THEN CAST(e.stream AS VARCHAR) ELSE CAST(e.thread AS VARCHAR) || e.own_row END AS tid,
    -- Start, ns since the machine's start.
    CAST(CASE WHEN e.ph = 'M' THEN 0 ELSE e.start_ns END AS HUGEINT) AS start_ns,
    CAST(e.end_ns AS HUGEINT) - e.start_ns AS duration_ns,  -- Duration, ns.
    e.device,  -- Number of the GPU.
    e.stream,  -- HIP stream; the queue if the stream was not recorded.
    e.correlation,  -- Correlation id.
    e.bytes,  -- Bytes copied; NULL from CSV files, which do not contain them.
    CASE WHEN e.ph = 'i' THEN 't' END AS scope,  -- Marks belong to their thread.
    e.args  -- Other recorded values, as JSON with Kineto's keys.
FROM _rocm_order AS o
-- The number alone identifies the row. With the time, DuckDB can read a part of the events without scanning all rows.
JOIN _rocm_rows AS e ON e.rowid = o.n AND e.at_ns = o.at_ns
CROSS JOIN _rocm_session AS s;
