-- One row: an op-level trace of a pipeline-parallel job, with its slowdown by the what-if model. This table is the
-- commit marker of such jobs: rows of the other op_job tables count only if their job is in it.
-- How: each step is replayed twice: with each op's own duration, and with the average duration of its type over all
-- ranks and steps.
-- scope: job
-- key: job_id
-- check: unique(job_id)
SELECT
    CAST(job_id AS VARCHAR) AS job_id,  -- The job's trace: hash over the content of its two files.
    CAST(batch_id AS VARCHAR) AS batch_id,  -- Ingest run that wrote it.
    CAST(job AS VARCHAR) AS job,  -- Job name: set at ingestion, else from the YAML file or its name.
    CAST(path AS VARCHAR) AS path,  -- The Parquet file.
    CAST(dp AS BIGINT) AS dp,  -- Number of data-parallel ranks.
    CAST(dsp AS BIGINT) AS dsp,  -- Number of ranks per data-parallel rank, by sharded data parallelism.
    CAST(pp AS BIGINT) AS pp,  -- Number of pipeline stages.
    CAST(tp AS BIGINT) AS tp,  -- Number of tensor-parallel ranks, of which one is recorded.
    CAST(vpp AS BIGINT) AS vpp,  -- Number of model chunks per stage.
    CAST(world_size AS BIGINT) AS world_size,  -- Number of GPUs: dp * dsp * pp * tp.
    CAST(n_steps AS BIGINT) AS n_steps,  -- Number of sampled steps.
    CAST(n_ops AS BIGINT) AS n_ops,  -- Number of recorded ops.
    CAST(slowdown AS DOUBLE) AS slowdown,  -- Mean replayed step divided by mean ideal step; 1 without stragglers.
    -- Mean recorded step divided by mean replayed step: effect of gaps between an op and the ops it waited for.
    CAST(launch_slowdown AS DOUBLE) AS launch_slowdown,
    CAST(recorded_ns AS BIGINT) AS recorded_ns,  -- Mean step as recorded, ns.
    CAST(step_ns AS BIGINT) AS step_ns,  -- Mean step replayed without gaps, ns.
    CAST(ideal_ns AS BIGINT) AS ideal_ns,  -- Mean step with ideal ops, ns.
    CAST(gpu_seconds AS DOUBLE) AS gpu_seconds,  -- GPU-seconds of the sampled steps.
    -- Part of gpu_seconds lost to ops that took longer than the ideal.
    CAST(straggler_gpu_seconds AS DOUBLE) AS straggler_gpu_seconds,
    CAST(launch_gpu_seconds AS DOUBLE) AS launch_gpu_seconds,  -- Part of gpu_seconds lost to gaps.
    CAST(ingested_at AS TIMESTAMP) AS ingested_at  -- Time of ingestion, UTC.
FROM _staged_op_jobs
