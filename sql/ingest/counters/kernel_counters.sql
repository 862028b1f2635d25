-- One row: a hardware counter of a dispatch (a launch of a kernel), from a profiler's file of counters. The file is not
-- from the run of a trace. Kernels are slower while they are counted, so compare times only within the file. Kineto's
-- range profiler writes counters of kernels or of ranges of the program into the trace itself.
-- scope: counters
-- check: unique(trace_id, line, counter)
WITH staged AS (
    SELECT
        CAST(trace_id AS VARCHAR) AS trace_id,
        CAST(batch_id AS VARCHAR) AS batch_id,
        CAST(line AS BIGINT) AS line,
        CAST(process_id AS BIGINT) AS process_id,
        CAST(dispatch_id AS BIGINT) AS dispatch_id,
        CAST(kernel_name AS VARCHAR) AS kernel_name,
        CAST(device AS BIGINT) AS device,
        CAST(stream AS BIGINT) AS stream,
        CAST(grid_threads AS BIGINT) AS grid_threads,
        CAST(block_threads AS BIGINT) AS block_threads,
        CAST(section AS VARCHAR) AS section,
        CAST(counter AS VARCHAR) AS counter,
        CAST(value AS DOUBLE) AS value,
        CAST(unit AS VARCHAR) AS unit,
        CAST(start_ns AS BIGINT) AS start_ns,
        CAST(duration_ns AS BIGINT) AS duration_ns,
        CAST(source AS VARCHAR) AS source
    FROM _staged_kernel_counters
),

-- The result has few rows, so memory does not grow with the file, as it would for a window function over all rows.
repeated AS (
    SELECT
        process_id,
        dispatch_id,
        section,
        counter,
        min(line) AS first_line
    FROM staged
    GROUP BY process_id, dispatch_id, section, counter
    HAVING count(*) > 1
)

SELECT
    staged.trace_id,  -- The file, in counter_files.
    staged.batch_id,  -- Ingest run that wrote it.
    staged.line,  -- Line of the file, from 1; from Kineto, the event_id of the range.
    staged.process_id,  -- Process.
    staged.dispatch_id,  -- Number of the dispatch in its process, shared by its counters; from Kineto, of the range.
    staged.kernel_name,  -- Kernel name in the file; NULL if it has none, and for a range of the program.
    staged.device,  -- GPU number; from rocprofv3, the agent number, which counts CPUs too.
    staged.stream,  -- Stream; from rocprofv3, the queue.
    staged.grid_threads,  -- Threads of the whole grid.
    staged.block_threads,  -- Threads of a block (workgroup).
    staged.section,  -- Section of the report; from Kineto, the range; NULL if there is none.
    staged.counter,  -- Counter or metric: FETCH_SIZE, dram__bytes.sum, …
    staged.value,  -- Value, in unit; NULL if the file has no number of at most 64 bits.
    staged.unit,  -- Unit in the file; NULL from rocprofv3 and Kineto, which write no units.
    staged.start_ns,  -- Start of the dispatch, ns since the machine's start; NULL from ncu and Kineto.
    staged.duration_ns,  -- Duration while counted, ns; NULL if not recorded.
    staged.source  -- Source of the file: rocprofv3, ncu details or ncu raw (by page), or Kineto.
FROM staged
LEFT JOIN repeated
    ON
        staged.dispatch_id = repeated.dispatch_id
        AND staged.counter = repeated.counter
        AND coalesce(staged.process_id, -1) = coalesce(repeated.process_id, -1)
        AND coalesce(staged.section, '') = coalesce(repeated.section, '')
WHERE repeated.first_line IS NULL OR staged.line = repeated.first_line
