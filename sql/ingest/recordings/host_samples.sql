-- One row: a sample of the system's counters for a process. Counters start with the process; host_rates has their
-- rates.
-- scope: recording
-- check: unique(recording_id, t_mono_ns)
SELECT
    CAST(recording_id AS VARCHAR) AS recording_id,  -- The recording, in recordings.
    CAST(batch_id AS VARCHAR) AS batch_id,  -- Ingest run that wrote it.
    CAST(source AS VARCHAR) AS source,  -- proc or psutil.
    CAST(pid AS BIGINT) AS pid,  -- Process id.
    CAST(t_unix_ns AS BIGINT) AS t_unix_ns,  -- Time, ns since the Unix epoch.
    CAST(t_mono_ns AS BIGINT) AS t_mono_ns,  -- Time, ns on the host's monotonic clock.
    CAST(interval_ns AS BIGINT) AS interval_ns,  -- Intended time between two samples, ns.
    -- Start of the process, in the system's own unit; if it changes, the counters restart.
    CAST(start_ticks AS BIGINT) AS start_ticks,
    -- State of the main thread: R running, S sleeping, D waiting for a device, Z ended, …
    CAST(state AS VARCHAR) AS state,
    CAST(utime_ns AS BIGINT) AS utime_ns,  -- User CPU time, all threads, ns; in steps of the system's tick (10 ms).
    CAST(stime_ns AS BIGINT) AS stime_ns,  -- System CPU time, all threads, ns; in steps of the tick.
    CAST(minflt AS BIGINT) AS minflt,  -- Page faults without reading from storage.
    CAST(majflt AS BIGINT) AS majflt,  -- Page faults that read from storage.
    CAST(n_threads AS BIGINT) AS n_threads,  -- Number of threads.
    CAST(rss_bytes AS BIGINT) AS rss_bytes,  -- Memory in RAM, bytes.
    CAST(shared_bytes AS BIGINT) AS shared_bytes,  -- Part of rss_bytes shared with files or other processes, bytes.
    CAST(data_bytes AS BIGINT) AS data_bytes,  -- Data and stack, resident or not, bytes.
    CAST(vol_ctx AS BIGINT) AS vol_ctx,  -- Voluntary context switches of the main thread (it waited).
    CAST(invol_ctx AS BIGINT) AS invol_ctx,  -- Involuntary context switches of the main thread (it lost its core).
    CAST(io_read_bytes AS BIGINT) AS io_read_bytes,  -- Bytes read from storage; NULL for a process of another user.
    CAST(io_write_bytes AS BIGINT) AS io_write_bytes,  -- Bytes written to storage; NULL for a process of another user.
    CAST(cpu_last AS BIGINT) AS cpu_last  -- Core on which the main thread last ran.
FROM _staged_host_samples
