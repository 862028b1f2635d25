-- One row: a Python stack in which a thread of a recorded process was sampled, with the number of samples.
-- scope: recording
-- check: unique(recording_id, tid, thread, frames)
SELECT
    CAST(recording_id AS VARCHAR) AS recording_id,  -- The recording, in recordings.
    any_value(CAST(batch_id AS VARCHAR)) AS batch_id,  -- Ingest run that wrote it.
    -- Id of the thread in the system and in profiler traces; NULL for a thread created by C code.
    CAST(tid AS BIGINT) AS tid,
    CAST(thread AS VARCHAR) AS thread,  -- Name of the thread; NULL for a thread created by C code.
    CAST(frames AS VARCHAR) AS frames,  -- Frames, outermost first: a JSON list of "function (file:line)".
    -- Number of samples with this stack, out of recordings.n_samples, taken every recordings.interval_ns.
    CAST(sum(CAST(n_samples AS BIGINT)) AS BIGINT) AS n_samples,
    -- CPU time of the thread between these samples and the preceding samples, ns. A small value means that the thread
    -- waited. NULL if the system does not report it.
    CAST(sum(CAST(cpu_ns AS BIGINT)) AS BIGINT) AS cpu_ns,
    min(CAST(start_ns AS BIGINT)) AS start_ns,  -- Time of the first sample with this stack, ns since the Unix epoch.
    max(CAST(end_ns AS BIGINT)) AS end_ns  -- Time of the last sample with this stack, ns since the Unix epoch.
FROM _staged_stack_samples
GROUP BY recording_id, tid, thread, frames
