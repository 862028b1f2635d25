-- One row: a kernel of a trace, with the hardware counters measured for the same kernel in another run.
-- How: dispatches of a file match kernels with the same name, threads of the grid and threads of a block, and of the
-- same job if both have one. If a file has as many such dispatches as the trace has kernels, the n-th dispatch matches
-- the n-th launched kernel (order). Otherwise each kernel gets the mean of the dispatches (shape). A kernel in a trace
-- without grids gets the mean of its name, if the file has that name with one shape only (name). Several files, or
-- several processes of a file, are averaged.
-- scope: lake
-- check: unique(trace_id, event_id)
WITH valued AS (
    SELECT
        c.trace_id AS counters_id, coalesce(c.process_id, -1) AS process_id, c.dispatch_id, c.kernel_name,
        c.grid_threads, c.block_threads, m.measure,
        CASE WHEN c.unit IS NULL OR c.unit IN ('byte', '%') THEN c.value * CAST(m.factor AS DOUBLE) END AS value
    FROM counter_values AS c
    JOIN counter_measures AS m ON m.counter = c.metric
    WHERE c.kernel_name IS NOT NULL
),
-- A profiler may print names without namespaces, types and arguments. Such names match other names reduced in the same
-- way.
dispatches AS (
    SELECT
        counters_id, process_id, dispatch_id, kernel_name, grid_threads, block_threads,
        NOT regexp_matches(kernel_name, '[<(:]') AS is_short,
        avg(CASE WHEN measure = 'bytes_read' THEN value END) AS bytes_read,
        avg(CASE WHEN measure = 'bytes_written' THEN value END) AS bytes_written,
        avg(CASE WHEN measure = 'occupancy_percent' THEN value END) AS occupancy_percent,
        avg(CASE WHEN measure = 'l1_hit_percent' THEN value END) AS l1_hit_percent,
        coalesce(
            avg(CASE WHEN measure = 'l2_hit_percent' THEN value END),
            100 * avg(CASE WHEN measure = 'l2_hits' THEN value END)
            / nullif(
                avg(CASE WHEN measure = 'l2_hits' THEN value END)
                + avg(CASE WHEN measure = 'l2_misses' THEN value END), 0
            )
        ) AS l2_hit_percent,
        avg(CASE WHEN measure = 'tensor_percent' THEN value END) AS tensor_percent
    FROM valued
    GROUP BY counters_id, process_id, dispatch_id, kernel_name, grid_threads, block_threads
),
counted AS (
    SELECT
        d.*, f.job,
        row_number() OVER (
            PARTITION BY d.counters_id, d.process_id, d.kernel_name, d.grid_threads, d.block_threads
            ORDER BY d.dispatch_id
        ) AS place
    FROM dispatches AS d
    JOIN counter_files AS f ON f.trace_id = d.counters_id
),
means AS (
    SELECT
        counters_id, process_id, job, kernel_name, is_short, grid_threads, block_threads, count(*) AS n,
        avg(bytes_read) AS bytes_read, avg(bytes_written) AS bytes_written,
        avg(occupancy_percent) AS occupancy_percent, avg(l1_hit_percent) AS l1_hit_percent,
        avg(l2_hit_percent) AS l2_hit_percent, avg(tensor_percent) AS tensor_percent
    FROM counted
    GROUP BY counters_id, process_id, job, kernel_name, is_short, grid_threads, block_threads
),
shaped AS (
    SELECT *, count(*) OVER (PARTITION BY counters_id, process_id, kernel_name) AS n_shapes FROM means
),
launched AS (
    SELECT
        k.trace_id, k.event_id, k.device, k.name, k.start_ns, k.duration_ns, t.job,
        -- Files number dispatches as they were launched; streams and devices may run them in another order.
        coalesce(l.start_ns, k.start_ns) AS launched_ns,
        replace(regexp_extract(e.args, '"grid": *\[([0-9, ]+)\]', 1), ' ', '') AS grid,
        replace(regexp_extract(e.args, '"block": *\[([0-9, ]+)\]', 1), ' ', '') AS block,
        regexp_replace(
            replace(regexp_replace(k.name, '^void ', ''), '(anonymous namespace)::', ''), '[<(].*$', ''
        ) AS bare
    FROM kernels AS k
    JOIN events AS e ON e.trace_id = k.trace_id AND e.event_id = k.event_id
    JOIN traces AS t ON t.trace_id = k.trace_id
    LEFT JOIN events AS l ON l.trace_id = k.trace_id AND l.event_id = k.launch_event_id
    WHERE k.cat = 'kernel'
),
sized AS (
    SELECT
        *,
        -- As doubles, because the product of three integers may exceed 64 bits.
        TRY_CAST(regexp_extract(grid, '^([0-9]{1,10})', 1) AS DOUBLE)
        * coalesce(TRY_CAST(regexp_extract(grid, '^[^,]*,([0-9]{1,10})', 1) AS DOUBLE), 1)
        * coalesce(TRY_CAST(regexp_extract(grid, '^[^,]*,[^,]*,([0-9]{1,10})', 1) AS DOUBLE), 1) AS blocks,
        TRY_CAST(regexp_extract(block, '^([0-9]{1,5})', 1) AS BIGINT)
        * coalesce(TRY_CAST(regexp_extract(block, '^[^,]*,([0-9]{1,5})', 1) AS BIGINT), 1)
        * coalesce(TRY_CAST(regexp_extract(block, '^[^,]*,[^,]*,([0-9]{1,5})', 1) AS BIGINT), 1) AS block_threads,
        regexp_replace(bare, '^.*::', '') AS short_name
    FROM launched
),
asked AS (
    SELECT
        trace_id, event_id, device, name, short_name, start_ns, duration_ns, job, nullif(grid, '') AS grid,
        nullif(block, '') AS block, block_threads, blocks * block_threads IS NULL AS has_no_size,
        TRY_CAST(blocks * block_threads AS BIGINT) AS grid_threads,
        row_number() OVER (
            PARTITION BY trace_id, name, blocks, block_threads ORDER BY launched_ns, start_ns, event_id
        ) AS place,
        count(*) OVER (PARTITION BY trace_id, name, blocks, block_threads) AS n
    FROM sized
),
kinds AS (
    SELECT DISTINCT trace_id, job, name, short_name, grid_threads, block_threads, has_no_size, n FROM asked
),
-- The files with a kind of kernel: by full name, or by short name if the file has a short name.
met AS (
    SELECT
        k.trace_id, k.name, k.grid_threads, k.block_threads, k.has_no_size, k.n, s.counters_id,
        s.process_id, s.kernel_name,
        s.grid_threads AS counted_grid, s.block_threads AS counted_block,
        s.is_short AND s.kernel_name <> k.name AS is_short,
        CASE WHEN k.has_no_size THEN 'name' WHEN s.n = k.n THEN 'order' ELSE 'shape' END AS matched_by,
        s.bytes_read, s.bytes_written, s.occupancy_percent, s.l1_hit_percent, s.l2_hit_percent, s.tensor_percent
    FROM kinds AS k
    JOIN shaped AS s
        ON
            s.kernel_name = CASE WHEN s.is_short THEN k.short_name ELSE k.name END
            AND (s.job IS NULL OR k.job IS NULL OR s.job = k.job)
            AND (
                (s.grid_threads = k.grid_threads AND s.block_threads = k.block_threads)
                OR (k.has_no_size AND s.n_shapes = 1)
            )
),
found AS (
    SELECT
        a.trace_id, a.event_id, m.matched_by, m.is_short, m.counters_id,
        CASE WHEN m.matched_by = 'order' THEN c.bytes_read ELSE m.bytes_read END AS bytes_read,
        CASE WHEN m.matched_by = 'order' THEN c.bytes_written ELSE m.bytes_written END AS bytes_written,
        CASE WHEN m.matched_by = 'order' THEN c.occupancy_percent ELSE m.occupancy_percent END AS occupancy_percent,
        CASE WHEN m.matched_by = 'order' THEN c.l1_hit_percent ELSE m.l1_hit_percent END AS l1_hit_percent,
        CASE WHEN m.matched_by = 'order' THEN c.l2_hit_percent ELSE m.l2_hit_percent END AS l2_hit_percent,
        CASE WHEN m.matched_by = 'order' THEN c.tensor_percent ELSE m.tensor_percent END AS tensor_percent
    FROM asked AS a
    JOIN met AS m
        ON
            m.trace_id = a.trace_id AND m.name = a.name AND m.n = a.n AND m.has_no_size = a.has_no_size
            AND m.grid_threads IS NOT DISTINCT FROM a.grid_threads
            AND m.block_threads IS NOT DISTINCT FROM a.block_threads
    LEFT JOIN counted AS c
        ON
            m.matched_by = 'order' AND c.counters_id = m.counters_id AND c.process_id = m.process_id
            AND c.kernel_name = m.kernel_name AND c.grid_threads = m.counted_grid
            AND c.block_threads = m.counted_block AND c.place = a.place
),
averaged AS (
    SELECT
        trace_id, event_id, count(DISTINCT counters_id) AS n_files, bool_or(is_short) AS is_short,
        CASE WHEN min(matched_by) = max(matched_by) THEN min(matched_by) ELSE 'shape' END AS matched_by,
        avg(bytes_read) AS bytes_read, avg(bytes_written) AS bytes_written,
        avg(occupancy_percent) AS occupancy_percent, avg(l1_hit_percent) AS l1_hit_percent,
        avg(l2_hit_percent) AS l2_hit_percent, avg(tensor_percent) AS tensor_percent
    FROM found
    GROUP BY trace_id, event_id
)
SELECT
    a.trace_id,  -- The trace.
    a.event_id,  -- The kernel's position in traceEvents.
    a.device,  -- Device it ran on.
    a.name,  -- Name of the kernel.
    a.grid,  -- Blocks of the grid, X, Y, Z; NULL if not recorded.
    a.block,  -- Threads of a block, X, Y, Z; NULL if not recorded.
    a.grid_threads,  -- Threads of the whole grid.
    a.block_threads,  -- Threads of a block.
    a.duration_ns,  -- Duration in the trace, ns.
    -- order, shape or name, as above; shape if files differ; NULL if no file has counted such a kernel.
    v.matched_by,
    -- True if a file has its name without namespaces, types and arguments; NULL as matched_by.
    v.is_short AS by_short_name,
    coalesce(v.n_files, 0) AS n_files,  -- Files that have counted such a kernel.
    v.bytes_read,  -- Bytes read from the device's memory; NULL where not measured, as in all following columns.
    v.bytes_written,  -- Bytes written to the device's memory.
    v.occupancy_percent,  -- Resident warps (waves) while the kernel ran, percent of the maximum.
    v.l1_hit_percent,  -- Hits of the L1 cache, percent.
    v.l2_hit_percent,  -- Hits of the L2 cache, percent.
    v.tensor_percent  -- Activity of tensor cores (AMD: matrix cores), percent.
FROM asked AS a
LEFT JOIN averaged AS v ON v.trace_id = a.trace_id AND v.event_id = a.event_id
