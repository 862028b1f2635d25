-- One row: a rank's part in a collective that several logs of the NCCL Inspector have, with how long it waited in it.
-- How: by communicator and sequence number. All ranks leave a collective together, so the one that ran for the shortest
-- time came last, and what another ran longer it waited. That takes each rank's kernel time for its presence.
-- scope: lake
WITH parts AS (
    SELECT
        l.job, c.log_id, c.line, c.communicator_id, c.communicator_name, c.rank, c.n_ranks, c.name, c.seq,
        c.size_bytes, c.duration_ns, c.bus_gigabytes_per_s, c.timing_source, c.dumped_ns, l.host,
        count(*) OVER by_call AS n_seen,
        min(c.duration_ns) OVER by_call AS least_ns,
        max(c.duration_ns) OVER by_call AS most_ns,
        sum(c.duration_ns) OVER by_call AS sum_ns,
        row_number() OVER (
            PARTITION BY c.communicator_id, c.name, c.seq, l.job ORDER BY c.duration_ns, c.rank, c.log_id, c.line
        ) AS place
    FROM inspector_collectives AS c
    JOIN inspector_logs AS l ON l.log_id = c.log_id
    WHERE c.kind = 'coll'
    WINDOW by_call AS (PARTITION BY c.communicator_id, c.name, c.seq, l.job)
)
SELECT
    log_id,  -- The log.
    line,  -- Its line.
    job,  -- Job name; NULL when unknown.
    host,  -- Host of the rank.
    communicator_id,  -- Communicator.
    communicator_name,  -- Its name; NULL before format v4.1.
    rank,  -- Rank in the communicator.
    name,  -- AllReduce, ReduceScatter, …
    seq,  -- Its number in the communicator.
    size_bytes,  -- Size of the message, bytes.
    dumped_ns,  -- When the plugin wrote it, ns since the Unix epoch.
    duration_ns,  -- How long it ran on this rank, ns.
    bus_gigabytes_per_s,  -- Bandwidth of the bus, GB/s.
    timing_source,  -- Clock of the duration.
    n_ranks,  -- Ranks of the communicator.
    n_seen,  -- Those that the lake has of this collective: with fewer than n_ranks the last to come may be missing.
    duration_ns - least_ns AS waited_ns,  -- What it ran longer than the shortest, ns; 0 for the rank that came last.
    place = 1 AND most_ns > least_ns AS is_last,  -- It ran for the shortest time: the others waited for it.
    -- What the other ranks waited for it, ns; 0 for all but the last.
    CASE WHEN place = 1 THEN CAST(sum_ns - n_seen * least_ns AS BIGINT) ELSE 0 END AS caused_wait_ns
FROM parts
WHERE n_seen > 1
