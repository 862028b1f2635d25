-- One row: an operator's calls in a trace with equal shapes and type, with the bytes predicted by its formula and the
-- bytes measured by hardware counters in another run.
-- How: sums over op_work, and over the kernels of op_kernels in kernel_measurements. An operator without measurements
-- has no row.
-- scope: lake
-- check: unique(trace_id, op, dims, dtype)
WITH measured AS (
    SELECT
        o.trace_id, o.op_event_id, count(*) AS n_kernels, count(m.bytes_read + m.bytes_written) AS n_measured,
        sum(m.bytes_read) AS bytes_read, sum(m.bytes_written) AS bytes_written
    FROM op_kernels AS o
    JOIN kernel_measurements AS m ON m.trace_id = o.trace_id AND m.event_id = o.event_id
    WHERE o.source IS NOT NULL
    GROUP BY o.trace_id, o.op_event_id
)
SELECT
    w.trace_id,  -- The trace.
    w.op,  -- Name of the operator.
    w.dims,  -- Shapes of its arguments, JSON; NULL if not recorded.
    w.dtype,  -- Type that decides the peak; NULL without a model, or for a type that is unknown.
    count(*) AS n_ops,  -- Calls of the operator.
    TRY_CAST(sum(m.n_kernels) AS BIGINT) AS n_kernels,  -- Kernels of these calls.
    TRY_CAST(sum(m.n_measured) AS BIGINT) AS n_measured,  -- Kernels whose bytes read and written were measured.
    -- Minimum traffic, bytes, as op_work.bytes; NULL if unknown for any call.
    CASE WHEN count(w.bytes) = count(*) THEN TRY_CAST(sum(w.bytes) AS BIGINT) END AS bytes_modelled,
    -- Bytes read from the device's memory and written to it; NULL unless measured for all kernels.
    CASE
        WHEN sum(m.n_measured) = sum(m.n_kernels) THEN TRY_CAST(sum(m.bytes_read + m.bytes_written) AS BIGINT)
    END AS bytes_measured,
    sum(m.bytes_read) AS bytes_read  -- Bytes read by the kernels with a measurement.
FROM op_work AS w
JOIN measured AS m ON m.trace_id = w.trace_id AND m.op_event_id = w.event_id
GROUP BY w.trace_id, w.op, w.dims, w.dtype
HAVING count(m.bytes_read) > 0 OR sum(m.n_measured) > 0
