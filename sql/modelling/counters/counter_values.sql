-- One row: a value of kernel_counters, by the metric's name and in a unit without a prefix, so that values of several
-- files and of both pages of Nsight Compute compare.
-- How: counter_labels has the metrics of labels, counter_units the factors of units. Other names and units stay.
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
    coalesce(l.metric, c.counter) AS metric,  -- The metric that the counter is a label of; else the counter.
    c.value * coalesce(CAST(u.factor AS DOUBLE), 1e0) AS value,  -- Its value, in unit; NULL as in kernel_counters.
    coalesce(u.base, c.unit) AS unit,  -- Unit without a prefix: byte, second, hz, %, …; NULL where the file has none.
    c.duration_ns,  -- How long the dispatch ran while it was counted, ns; NULL where unknown.
    c.source  -- Writer of the file, as in kernel_counters.
FROM kernel_counters AS c
LEFT JOIN counter_units AS u ON u.unit = c.unit
LEFT JOIN counter_labels AS l
    ON l.label = c.counter AND coalesce(l.base, '') = coalesce(u.base, c.unit, '')
