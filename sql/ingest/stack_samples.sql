-- One row: a Python stack that a thread of a recorded process was seen in, and how often.
-- scope: recording
-- check: unique(recording_id, tid, thread, frames)
SELECT
    CAST(recording_id AS VARCHAR) AS recording_id,  -- The recording, in recordings.
    any_value(CAST(batch_id AS VARCHAR)) AS batch_id,  -- Ingest run that wrote it.
    CAST(tid AS BIGINT) AS tid,  -- The thread, as the system and profiler traces number it; NULL for one that C code made.
    CAST(thread AS VARCHAR) AS thread,  -- Its name; NULL for one that C code made.
    CAST(frames AS VARCHAR) AS frames,  -- Its frames, outermost first: a JSON list of "function (file:line)".
    CAST(sum(CAST(n_samples AS BIGINT)) AS BIGINT) AS n_samples,  -- Samples that saw it there; of recordings.n_samples, each recordings.interval_ns apart.
    CAST(sum(CAST(cpu_ns AS BIGINT)) AS BIGINT) AS cpu_ns,  -- CPU time that the thread used between these samples and those before, ns: little of it, and it waited; NULL where the system does not tell.
    min(CAST(first_ns AS BIGINT)) AS first_ns,  -- When it was first seen there, ns since the Unix epoch.
    max(CAST(last_ns AS BIGINT)) AS last_ns  -- When it was last seen there, ns since the Unix epoch.
FROM _staged_stack_samples
GROUP BY recording_id, tid, thread, frames
