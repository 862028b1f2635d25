-- One row: the interval between two samples of a process's counters, with rates.
-- How: differences from the previous sample, divided by the monotonic time between the two. An interval across a
-- restart of the process has no row.
-- scope: lake
WITH steps AS (
    SELECT
        recording_id, t_unix_ns, rss_bytes, n_threads,
        CASE
            WHEN start_ticks = lag(start_ticks) OVER sampled THEN t_mono_ns - lag(t_mono_ns) OVER sampled
        END AS between_ns,
        utime_ns - lag(utime_ns) OVER sampled AS user_ns,
        stime_ns - lag(stime_ns) OVER sampled AS system_ns,
        minflt - lag(minflt) OVER sampled AS minflt,
        majflt - lag(majflt) OVER sampled AS majflt,
        vol_ctx - lag(vol_ctx) OVER sampled AS vol_ctx,
        invol_ctx - lag(invol_ctx) OVER sampled AS invol_ctx,
        io_read_bytes - lag(io_read_bytes) OVER sampled AS read_bytes,
        io_write_bytes - lag(io_write_bytes) OVER sampled AS write_bytes
    FROM host_samples
    WINDOW sampled AS (PARTITION BY recording_id ORDER BY t_mono_ns)
)
SELECT
    s.recording_id,  -- The recording, in recordings.
    r.run_id,  -- The run.
    r.host,  -- Host.
    r.rank,  -- Rank; NULL if not recorded.
    s.t_unix_ns,  -- The later sample, ns since the Unix epoch.
    s.between_ns,  -- Time since the earlier sample, ns.
    -- Cores in use by user code; resolution: the tick (10 ms) divided by the interval.
    CAST(s.user_ns AS DOUBLE) / s.between_ns AS user_cores,
    -- Cores in use by the system for the process; same resolution.
    CAST(s.system_ns AS DOUBLE) / s.between_ns AS system_cores,
    1e9 * s.minflt / s.between_ns AS minor_faults_per_s,  -- Page faults without storage, 1/s.
    1e9 * s.majflt / s.between_ns AS major_faults_per_s,  -- Page faults from storage, 1/s.
    1e9 * s.vol_ctx / s.between_ns AS waits_per_s,  -- Voluntary context switches of the main thread, 1/s.
    1e9 * s.invol_ctx / s.between_ns AS preemptions_per_s,  -- Involuntary context switches of the main thread, 1/s.
    1e9 * s.read_bytes / s.between_ns AS read_bytes_per_s,  -- Read from storage, bytes/s; NULL where not reported.
    1e9 * s.write_bytes / s.between_ns AS write_bytes_per_s,  -- Written to storage, bytes/s; NULL where not reported.
    s.rss_bytes,  -- Memory in RAM at the later sample, bytes.
    s.n_threads  -- Threads at the later sample.
FROM steps AS s
JOIN recordings AS r ON r.recording_id = s.recording_id
WHERE s.between_ns > 0
