-- One row: a value of kernel_counters, with the metric's name and a unit without a prefix, so that values of several
-- files and of both pages of Nsight Compute can be compared.
-- How: counter_labels maps labels to metrics, counter_units has the factors of units. Other names and units stay
-- unchanged.
-- scope: lake
-- check: unique(trace_id, line, counter)
SELECT
    c.trace_id,  -- The file, in counter_files.
    c.line,  -- Line of the file, from 1.
    c.process_id,  -- Process.
    c.dispatch_id,  -- Number of the dispatch in its process.
    c.kernel_name,  -- Kernel, as the profiler names it; NULL where it has no name.
    c.device,  -- GPU; from rocprofv3 the number of the agent.
    c.grid_threads,  -- Threads of the whole grid.
    c.block_threads,  -- Threads of a block (workgroup).
    c.counter,  -- Counter, as the file names it.
    coalesce(l.metric, c.counter) AS metric,  -- Metric that the counter is a label of, else the counter.
    -- Value of the metric, in unit; NULL as in kernel_counters.
    c.value * coalesce(CAST(u.factor AS DOUBLE), 1e0) AS value,
    coalesce(u.base, c.unit) AS unit,  -- Unit without a prefix: byte, second, hz, %, …; NULL where the file has none.
    c.duration_ns,  -- Duration of the dispatch during counting, ns; NULL where unknown.
    c.source  -- Writer of the file, as in kernel_counters.
FROM kernel_counters AS c
LEFT JOIN counter_units AS u ON u.unit = c.unit
LEFT JOIN counter_labels AS l
    ON l.label = c.counter AND coalesce(l.base, '') = coalesce(u.base, c.unit, '')
