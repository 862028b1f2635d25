-- One row: a run of a schedule. This table is the commit marker of runs: rows of the other schedule tables count only
-- if their run is in it.
-- scope: run
-- key: run_id
-- check: unique(run_id)
SELECT
    CAST(run_id AS VARCHAR) AS run_id,  -- The run.
    CAST(batch_id AS VARCHAR) AS batch_id,  -- Ingest run that wrote it.
    CAST(plan_hash AS VARCHAR) AS plan_hash,  -- The plan, in schedule_plans.
    CAST(engine AS VARCHAR) AS engine,  -- serial, sw (clocked) or dataflow.
    CAST(device AS VARCHAR) AS device,  -- Device of the run: cuda:N, cpu or simulated.
    CAST(device_name AS VARCHAR) AS device_name,  -- Name of the GPU or processor.
    CAST(torch_version AS VARCHAR) AS torch_version,  -- Version of torch.
    CAST(python_version AS VARCHAR) AS python_version,  -- Version of Python.
    CAST(seed AS BIGINT) AS seed,  -- Seed of data and weights.
    CAST(size AS VARCHAR) AS size,  -- Size of the workload.
    CAST(iterations AS BIGINT) AS iterations,  -- Number of measured iterations.
    CAST(warmup AS BIGINT) AS warmup,  -- Number of earlier iterations, which no table contains.
    -- Time from the start to the end of the last work on the device, ns; virtual time on simulated.
    CAST(wall_ns AS BIGINT) AS wall_ns,
    CAST(throughput_per_s AS DOUBLE) AS throughput_per_s,  -- Iterations per second.
    CAST(host AS VARCHAR) AS host,  -- Host name.
    CAST(started_at AS TIMESTAMP) AS started_at,  -- Start of the run, UTC.
    -- Maximum number of iterations in flight in a data-flow engine; NULL for other engines.
    CAST(max_depth AS BIGINT) AS max_depth,
    CAST(jitter_ns AS BIGINT) AS jitter_ns,  -- Mean of the delay added to jitter_task, ns; 0 for none.
    CAST(jitter_task AS VARCHAR) AS jitter_task,  -- Task that was delayed; NULL if none was.
    -- Trace of the same iterations, next to the run's tables; NULL if not recorded.
    CAST(trace_file AS VARCHAR) AS trace_file
FROM _staged_schedule_runs
