-- One row: a kernel name and shape on a device of a trace, with the time of its kernels and their hardware counters
-- from another run.
-- How: sums and means over kernel_measurements, which defines how counters match kernels. Times come from the trace,
-- which ran without counters. Bandwidth is measured bytes over the time of the kernels for which they were measured.
-- scope: lake
-- check: unique(trace_id, device, name, grid, block)
WITH kinds AS (
    SELECT
        trace_id, device, name, grid, block,
        count(*) AS n_kernels, sum(duration_ns) AS duration_ns, count(matched_by) AS n_measured,
        CASE WHEN min(matched_by) = max(matched_by) THEN min(matched_by) ELSE 'shape' END AS matched_by,
        bool_or(by_short_name) AS by_short_name, max(n_files) AS n_files,
        avg(occupancy_percent) AS occupancy_percent, avg(l1_hit_percent) AS l1_hit_percent,
        avg(l2_hit_percent) AS l2_hit_percent, avg(tensor_percent) AS tensor_percent,
        sum(bytes_read) AS bytes_read, sum(bytes_written) AS bytes_written,
        sum(CASE WHEN bytes_read IS NOT NULL THEN duration_ns END) AS read_ns,
        sum(CASE WHEN bytes_read + bytes_written IS NOT NULL THEN bytes_read + bytes_written END) AS bytes_both,
        sum(CASE WHEN bytes_read + bytes_written IS NOT NULL THEN duration_ns END) AS both_ns
    FROM kernel_measurements
    GROUP BY trace_id, device, name, grid, block
),
-- The device, derived as in _work_devices, because views of a lake cannot read that table.
alike AS (
    SELECT trace_id, min(device_key) AS device_key
    FROM trace_devices
    GROUP BY trace_id
    HAVING count(DISTINCT device_key) = 1 AND count(device_key) = count(*)
),
placed AS (
    SELECT k.*, CASE WHEN t.trace_id IS NOT NULL THEN t.device_key ELSE a.device_key END AS device_key
    FROM kinds AS k
    LEFT JOIN trace_devices AS t ON t.trace_id = k.trace_id AND t.device = k.device
    LEFT JOIN alike AS a ON a.trace_id = k.trace_id
)
SELECT
    k.trace_id,  -- The trace.
    k.device,  -- Device of the kernels.
    k.name,  -- Name of the kernel.
    k.grid,  -- Blocks of the grid, X, Y, Z; NULL if not recorded.
    k.block,  -- Threads of a block, X, Y, Z; NULL if not recorded.
    k.n_kernels,  -- Kernels in the trace.
    TRY_CAST(k.duration_ns AS BIGINT) AS duration_ns,  -- Summed duration of these kernels in the trace, ns.
    k.n_measured,  -- Kernels for which a file has counters.
    -- How counters match kernels: order, shape or name, as in kernel_measurements; shape if kernels of the row differ;
    -- NULL if no file has counted such a kernel.
    CASE WHEN k.n_measured > 0 THEN k.matched_by END AS matched_by,
    -- True if a file has the kernel's name without namespaces, types and arguments; NULL where matched_by is NULL.
    k.by_short_name,
    k.n_files,  -- Files that have counted such a kernel.
    k.occupancy_percent,  -- Mean occupancy, percent; NULL where not measured, as in all following columns.
    k.l1_hit_percent,  -- Mean share of hits of the L1 cache, percent.
    k.l2_hit_percent,  -- Mean share of hits of the L2 cache, percent.
    k.tensor_percent,  -- Mean activity of tensor cores (AMD: matrix cores), percent.
    k.bytes_read,  -- Bytes that the measured kernels read from the device's memory.
    k.bytes_written,  -- Bytes that the measured kernels wrote to the device's memory.
    k.bytes_read / nullif(k.read_ns, 0) AS read_gigabytes_per_s,  -- Bytes read per second of kernel time, decimal GB/s.
    -- Bytes read and written per second of kernel time, decimal GB/s; NULL if only one of the two was measured.
    k.bytes_both / nullif(k.both_ns, 0) AS gigabytes_per_s,
    k.device_key,  -- The device in devices; NULL where it is unknown.
    -- gigabytes_per_s in percent of the memory's bandwidth on the data sheet; not clipped.
    100 * k.bytes_both / nullif(k.both_ns, 0) / v.hbm_gigabytes_per_s AS bandwidth_percent
FROM placed AS k
LEFT JOIN devices AS v ON v.device_key = k.device_key
