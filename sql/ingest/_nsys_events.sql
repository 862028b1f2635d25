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
    -- Start, ns since 1970; a thread's name has none of its own.
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
    CASE WHEN e.ph = 'C' THEN e.own_row END AS flow_id,  -- Key id, which tells counters of one name apart: the GPU.
    CASE WHEN e.ph = 'i' THEN 't' END AS scope,  -- Marks belong to their thread.
    e.args  -- What else is known, as JSON with Kineto's keys.
FROM _nsys_order AS o
-- The number alone tells the row; the time lets a part of the events be read without looking at all rows.
JOIN _nsys_rows AS e ON e.rowid = o.n AND e.at_ns = o.at_ns
CROSS JOIN _nsys_session AS s
