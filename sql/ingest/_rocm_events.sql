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
    e.stream,  -- HIP stream; where it was not recorded, the queue.
    e.correlation,  -- Correlation id.
    e.bytes,  -- Bytes copied; NULL in CSV files, which do not say.
    CASE WHEN e.ph = 'i' THEN 't' END AS scope,  -- Marks belong to their thread.
    e.args  -- What else is known, as JSON with Kineto's keys.
FROM _rocm_order AS o
-- The number alone tells the row; the time lets a part of the events be read without looking at all rows.
JOIN _rocm_rows AS e ON e.rowid = o.n AND e.at_ns = o.at_ns
CROSS JOIN _rocm_session AS s
