-- One row: a rank's part in a collective that is in several logs of the NCCL Inspector, with the rank's waiting time.
-- How: match by communicator and sequence number. All ranks leave a collective together, so the rank with the shortest
-- duration came last, and the excess of another rank's duration is waiting. This assumes that a rank is present exactly
-- while its kernel runs. A duration by the clock collective_cpu covers the enqueue, not the kernel, so it is not
-- compared.
-- scope: lake
WITH calls AS (
    SELECT *, CASE WHEN coalesce(timing_source, '') <> 'collective_cpu' THEN duration_ns END AS kernel_ns
    FROM inspector_collectives
    WHERE kind = 'coll'
),
parts AS (
    SELECT
        l.job, c.log_id, c.line, c.communicator_id, c.communicator_name, c.rank, c.n_ranks, c.name, c.seq,
        c.size_bytes, c.duration_ns, c.kernel_ns, c.bus_gigabytes_per_s, c.timing_source, c.dumped_ns, l.host,
        count(*) OVER by_call AS n_seen,
        count(c.kernel_ns) OVER by_call AS n_timed,
        min(c.kernel_ns) OVER by_call AS least_ns,
        max(c.kernel_ns) OVER by_call AS most_ns,
        sum(c.kernel_ns) OVER by_call AS sum_ns,
        row_number() OVER (
            PARTITION BY c.communicator_id, c.name, c.seq, l.job
            ORDER BY c.kernel_ns NULLS LAST, c.rank, c.log_id, c.line
        ) AS place
    FROM calls AS c
    JOIN inspector_logs AS l ON l.log_id = c.log_id
    WINDOW by_call AS (PARTITION BY c.communicator_id, c.name, c.seq, l.job)
)
SELECT
    log_id,  -- The log.
    line,  -- Line of the log.
    job,  -- Job name; NULL if unknown.
    host,  -- Host of the rank.
    communicator_id,  -- Communicator.
    communicator_name,  -- Name of the communicator; NULL before format v4.1.
    rank,  -- Rank in the communicator.
    name,  -- AllReduce, ReduceScatter, …
    seq,  -- Sequence number in the communicator.
    size_bytes,  -- Size of the message, bytes.
    dumped_ns,  -- Time at which the plugin wrote the call, ns since the Unix epoch.
    duration_ns,  -- Duration on this rank, ns; NULL where the line has none.
    bus_gigabytes_per_s,  -- Bus bandwidth, GB/s.
    timing_source,  -- Clock of the duration.
    n_ranks,  -- Number of ranks of the communicator.
    n_seen,  -- Number of rows of this collective in the lake; if it is below n_ranks, the last rank may be missing.
    -- Number of these rows that have a duration of the kernel; if it is below n_ranks, another rank may have come last.
    n_timed,
    -- Waiting time: duration minus the shortest, ns; 0 for the rank that came last. NULL, like the two columns that
    -- follow, if this rank, or every other rank, has no duration of the kernel.
    CASE WHEN n_timed > 1 THEN kernel_ns - least_ns END AS waited_ns,
    -- Whether this rank came last, so that the others waited for it.
    CASE WHEN n_timed > 1 AND kernel_ns IS NOT NULL THEN place = 1 AND most_ns > least_ns END AS is_last,
    -- Waiting time of the other ranks for this rank, ns; 0 unless it came last.
    CASE
        WHEN n_timed < 2 THEN NULL
        WHEN place = 1 THEN CAST(sum_ns - n_timed * least_ns AS BIGINT)
        WHEN kernel_ns IS NOT NULL THEN 0
    END AS caused_wait_ns
FROM parts
WHERE n_seen > 1
