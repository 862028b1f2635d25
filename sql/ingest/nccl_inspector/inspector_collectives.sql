-- One row: a collective or point-to-point call of a rank, from a log of the NCCL Inspector.
-- scope: inspector
-- check: unique(log_id, line)
SELECT
    CAST(log_id AS VARCHAR) AS log_id,  -- The log.
    CAST(batch_id AS VARCHAR) AS batch_id,  -- Ingest run that wrote it.
    CAST(line AS BIGINT) AS line,  -- Line of the log, from 1.
    -- Id of the communicator: a hash that is the same on all its ranks.
    CAST(communicator_id AS VARCHAR) AS communicator_id,
    CAST(communicator_name AS VARCHAR) AS communicator_name,  -- Name of the communicator; NULL before format v4.1.
    CAST(rank AS BIGINT) AS rank,  -- Rank in the communicator, not in the job.
    CAST(n_ranks AS BIGINT) AS n_ranks,  -- Number of ranks of the communicator.
    CAST(n_nodes AS BIGINT) AS n_nodes,  -- Number of nodes of the communicator.
    CAST(kind AS VARCHAR) AS kind,  -- coll or p2p.
    CAST(name AS VARCHAR) AS name,  -- AllReduce, ReduceScatter, Send, …
    -- Sequence number in the communicator, by kind; for a collective, the same on all ranks.
    CAST(seq AS BIGINT) AS seq,
    CAST(peer AS BIGINT) AS peer,  -- Other rank of a point-to-point call; NULL for collectives.
    CAST(algorithm AS VARCHAR) AS algorithm,  -- RING, TREE, …; NULL before format v4.1.
    CAST(protocol AS VARCHAR) AS protocol,  -- LL, LL128, SIMPLE; NULL before format v4.1.
    CAST(size_bytes AS BIGINT) AS size_bytes,  -- Size of the message, bytes.
    -- Duration on this rank, including waiting, ns, to the us; NULL if unknown.
    CAST(duration_ns AS BIGINT) AS duration_ns,
    -- Clock of the duration: kernel_gpu; kernel_cpu (less exact, because the host observes start and end); or
    -- collective_cpu (the host's time for the enqueue, because the kernel's is unknown).
    CAST(timing_source AS VARCHAR) AS timing_source,
    CAST(algorithm_gigabytes_per_s AS DOUBLE) AS algorithm_gigabytes_per_s,  -- Algorithm bandwidth, GB/s.
    CAST(bus_gigabytes_per_s AS DOUBLE) AS bus_gigabytes_per_s,  -- Bus bandwidth, GB/s, as defined by nccl-tests.
    -- Time at which the plugin wrote the call, ns since the Unix epoch, up to one dump interval after the call's end.
    CAST(dumped_ns AS BIGINT) AS dumped_ns,
    -- Time at which the call was enqueued, ns since the Unix epoch; NULL without NCCL_INSPECTOR_DUMP_VERBOSE=1.
    CAST(enqueued_ns AS BIGINT) AS enqueued_ns
FROM _staged_inspector_collectives
