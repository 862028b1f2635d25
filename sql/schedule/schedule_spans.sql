-- One row: a task of an iteration, as recorded in the trace of its run.
-- How: annotations named SWP/{task}/iter{N}, or SWP_serial/{task}/iter{N} in a serial run, in a trace whose metadata
-- names the run.
-- scope: lake
WITH ran AS (
    SELECT trace_id, metadata ->> '$.schedule_run_id' AS run_id
    FROM traces
    WHERE metadata ->> '$.schedule_run_id' IS NOT NULL
)
SELECT
    r.run_id,  -- The run.
    e.trace_id,  -- Trace of the run.
    e.event_id,  -- The annotation.
    split_part(e.name, '/', 2) AS task,  -- The task.
    TRY_CAST(replace(split_part(e.name, '/', 3), 'iter', '') AS BIGINT) AS iteration,  -- The iteration, from 0.
    e.pid,  -- Process.
    e.tid,  -- Thread.
    e.start_ns,  -- Start, ns.
    e.duration_ns  -- Duration, ns.
FROM events AS e
JOIN ran AS r ON r.trace_id = e.trace_id
WHERE
    (e.name LIKE 'SWP/%/iter%' OR e.name LIKE 'SWP_serial/%/iter%') AND e.duration_ns IS NOT NULL
    AND e.cat <> 'gpu_user_annotation'
