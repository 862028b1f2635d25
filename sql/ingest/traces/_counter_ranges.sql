-- One row: a range of Kineto's CUPTI range profiler, for a kernel or an interval of the program, with its hardware
-- counters in its arguments.
-- check: unique(event_id)
SELECT
    event_id,  -- Its position in traceEvents.
    name,  -- The kernel, or the name of the range.
    coalesce(device, TRY_CAST(pid AS BIGINT)) AS device,  -- GPU; NULL if the trace does not record it.
    args  -- JSON text of its arguments.
FROM events
WHERE cat = 'cuda_profiler_range'
ORDER BY event_id
