-- One row: a sample of a GPU metric that a profiler took at a fixed rate during the trace (Nsight Systems' GPU
-- metrics). The sample covers the whole GPU, regardless of the work that ran.
-- scope: lake
-- check: unique(trace_id, event_id)
SELECT
    trace_id,  -- The trace.
    event_id,  -- Number of the sample among the trace's events.
    device,  -- CUDA device of the process, as in kernels.
    TRY_CAST(flow_id AS BIGINT) AS gpu,  -- Number of the GPU on its machine.
    name AS metric,  -- Metric, as the profiler names it.
    start_ns AS at_ns,  -- Time of the sample, ns.
    TRY_CAST(args ->> '$.value' AS DOUBLE) AS value,  -- Value of the metric; NULL where the profiler has none.
    -- Unit in brackets at the end of the name; NULL without brackets.
    nullif(regexp_extract(name, '[[]([^]]+)[]]$', 1), '') AS unit
FROM events
WHERE cat = 'gpu_metrics' AND ph = 'C'
