-- One row: a GPU stream of a trace: a device and a stream number on it.
-- How: number the distinct (device, stream) of GPU work and waits. If a row has no device, its pid counts, because
-- Kineto writes the device there. GPU work without a stream counts as one stream per device.
-- check: unique(trace_id, stream_id)
WITH seen AS (
    SELECT
        e.trace_id,
        coalesce(e.device, TRY_CAST(e.pid AS BIGINT), 0) AS device,
        e.stream,
        count(*) FILTER (WHERE s.side = 'gpu') AS n_kernels
    FROM events AS e
    JOIN category_sides AS s ON s.cat = e.cat AND s.side IN ('gpu', 'sync')
    WHERE e.duration_ns IS NOT NULL AND (e.stream IS NOT NULL OR s.side = 'gpu')
    GROUP BY e.trace_id, coalesce(e.device, TRY_CAST(e.pid AS BIGINT), 0), e.stream
)
SELECT
    trace_id,  -- The trace.
    -- Number of the stream within its trace, from 1.
    row_number() OVER (PARTITION BY trace_id ORDER BY device, stream) AS stream_id,
    device,  -- Device number.
    stream,  -- Stream number on the device; NULL for GPU work without a stream.
    n_kernels  -- Number of GPU activities on the stream.
FROM seen
