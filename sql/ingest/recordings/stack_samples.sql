-- One row: a Python stack in which a thread of a recorded process was sampled, and how often.
-- scope: recording
-- check: unique(recording_id, tid, thread, frames)
SELECT
    CAST(recording_id AS VARCHAR) AS recording_id,  -- The recording, in recordings.
    any_value(CAST(batch_id AS VARCHAR)) AS batch_id,  -- Ingest run that wrote it.
    -- The thread's id, as in the system and in profiler traces; NULL for one created by C code.
    CAST(tid AS BIGINT) AS tid,
    CAST(thread AS VARCHAR) AS thread,  -- Its name; NULL for one created by C code.
    CAST(frames AS VARCHAR) AS frames,  -- Its frames, outermost first: a JSON list of "function (file:line)".
    -- Samples with this stack, out of recordings.n_samples, taken every recordings.interval_ns.
    CAST(sum(CAST(n_samples AS BIGINT)) AS BIGINT) AS n_samples,
    -- CPU time that the thread used between these samples and the ones before, ns: where it is small, the thread
    -- waited; NULL where the system does not say.
    CAST(sum(CAST(cpu_ns AS BIGINT)) AS BIGINT) AS cpu_ns,
    min(CAST(start_ns AS BIGINT)) AS start_ns,  -- When it was first seen there, ns since the Unix epoch.
    max(CAST(end_ns AS BIGINT)) AS end_ns  -- When it was last seen there, ns since the Unix epoch.
FROM _staged_stack_samples
GROUP BY recording_id, tid, thread, frames
