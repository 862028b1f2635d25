-- One row: a profiler step as a pipeline of loading, computing and saving: what limited it, and how much of its
-- communication was exposed.
-- How: efficiency is the longest stage divided by the step; exposure is the time beyond the ideal, in units of ideal
-- communication. Values are kept even where models or peaks must be wrong. Communication is not a stage: its kernels
-- also run while they wait for other ranks, and one rank alone cannot tell that from work (step_exposure can).
-- check: unique(trace_id, step)
WITH staged AS (
    SELECT *, greatest(loader_ns, htod_ns) AS load_ns
    FROM _step_times
),
longest AS (
    SELECT *, CASE WHEN duration_ns > 0 THEN greatest(load_ns, comp_ns, save_ns) END AS longest_ns
    FROM staged
)
SELECT
    trace_id,  -- The trace.
    step,  -- The profiler step.
    start_ns,  -- Start on the CPU, ns.
    duration_ns,  -- T_actual: its duration on the CPU, ns.
    -- Time in the data loader, clipped to the step, ns; NULL where the trace's steps have none.
    TRY_CAST(loader_ns AS BIGINT) AS loader_ns,
    -- Time with copies to the device launched in the step, ns; NULL without GPU work.
    TRY_CAST(htod_ns AS BIGINT) AS htod_ns,
    TRY_CAST(load_ns AS BIGINT) AS load_ns,  -- T_load: the larger of the two, ns; NULL where both are.
    -- T_comp: time with computing kernels launched in the step, ns, excluding communication; NULL without GPU work.
    TRY_CAST(comp_ns AS BIGINT) AS comp_ns,
    -- T_save: time with copies to the host launched in the step or in annotations that save, ns; NULL without GPU work.
    TRY_CAST(save_ns AS BIGINT) AS save_ns,
    -- The longest stage divided by T_actual; may exceed 1; NULL where all stages are NULL or T_actual is 0.
    CAST(longest_ns AS DOUBLE) / duration_ns AS efficiency,
    -- load, comp or save: the longest, the first of equal ones; NULL with efficiency.
    CASE
        WHEN longest_ns = load_ns THEN 'load'
        WHEN longest_ns = comp_ns THEN 'comp'
        WHEN longest_ns = save_ns THEN 'save'
    END AS dragging_stage,
    -- Time in the data loader divided by T_actual, percent.
    100 * (CAST(loader_ns AS DOUBLE) / nullif(duration_ns, 0)) AS loader_percent,
    -- Time in the data loader while no GPU work ran, ns; NULL where the trace's steps have no loader.
    TRY_CAST(stall_ns AS BIGINT) AS loader_stall_ns,
    -- Ideal T_comp: matrix operations at the device's datasheet peak, ns; NULL for an unknown device or without
    -- modeled operators.
    comp_ideal_ns,
    -- Ideal T_c2c: collectives at full link bandwidth, ns; NULL where that of any is not known.
    communication_ideal_ns,
    -- T_ideal: the longer of the two, as if everything else overlapped, ns; NULL where both are.
    greatest(comp_ideal_ns, communication_ideal_ns) AS ideal_ns,
    n_communication,  -- Communication kernels of the step.
    n_communication_known,  -- Those with an ideal time.
    -- (T_actual - T_ideal) / T_c2c; above 1 where more than communication costs time; negative where a model or peak is
    -- wrong; NULL without ideal times.
    CASE
        WHEN communication_ideal_ns > 0 AND comp_ideal_ns IS NOT NULL
            THEN (duration_ns - greatest(comp_ideal_ns, communication_ideal_ns)) / communication_ideal_ns
    END AS exposure_ratio,
    -- Time with communication kernels launched in the step, waiting for other ranks included, ns; NULL without GPU work
    -- in the step.
    TRY_CAST(communication_ns AS BIGINT) AS communication_ns,
    -- Time of these with computation at the same time, ns; NULL without GPU work in the step.
    TRY_CAST(overlapped_ns AS BIGINT) AS communication_overlapped_ns,
    -- Measured percentage of that time without computation at the same time, waiting included; NULL without
    -- communication.
    100 * CASE WHEN communication_ns > 0 THEN CAST(communication_ns - overlapped_ns AS DOUBLE) / communication_ns END
        AS exposed_communication_percent,
    -- Share of the time from first to last computation in which nothing but transfers ran: an upper bound of the
    -- pipeline bubble, because other stalls count too; NULL without transfers between ranks.
    CASE
        WHEN n_transfers > 0 THEN 1 - CAST(stage_busy_ns AS DOUBLE) / nullif(last_ns - first_ns, 0)
    END AS bubble_upper,
    -- From the step's start to the first computation, ns; NULL without transfers between ranks.
    CASE WHEN n_transfers > 0 THEN first_ns - start_ns END AS warm_up_ns,
    -- From the last computation to the step's end on the CPU, ns; negative where the GPU runs beyond it; NULL without
    -- transfers.
    CASE WHEN n_transfers > 0 THEN end_ns - last_ns END AS cool_down_ns,
    -- The efficiency is above 1 or the exposure is negative: GPU work runs into other steps, or a model or peak is
    -- wrong.
    coalesce(longest_ns > duration_ns, FALSE)
    OR coalesce(communication_ideal_ns > 0 AND duration_ns < greatest(comp_ideal_ns, communication_ideal_ns), FALSE)
        AS suspect
FROM longest
