-- One row: a collective or point-to-point call of a rank, from a log of the NCCL Inspector.
-- scope: inspector
-- check: unique(log_id, line)
SELECT
    CAST(log_id AS VARCHAR) AS log_id,  -- The log.
    CAST(batch_id AS VARCHAR) AS batch_id,  -- Ingest run that wrote it.
    CAST(line AS BIGINT) AS line,  -- Line of the log, from 1.
    CAST(communicator_id AS VARCHAR) AS communicator_id,  -- Communicator: a hash, the same on all its ranks.
    CAST(communicator_name AS VARCHAR) AS communicator_name,  -- Its name; NULL before format v4.1.
    CAST(rank AS BIGINT) AS rank,  -- Rank in the communicator, not in the job.
    CAST(n_ranks AS BIGINT) AS n_ranks,  -- Ranks of the communicator.
    CAST(n_nodes AS BIGINT) AS n_nodes,  -- Nodes of the communicator.
    CAST(kind AS VARCHAR) AS kind,  -- coll or p2p.
    CAST(name AS VARCHAR) AS name,  -- AllReduce, ReduceScatter, Send, …
    -- Its number in the communicator, by kind; that of a collective is the same on all ranks.
    CAST(seq AS BIGINT) AS seq,
    CAST(peer AS BIGINT) AS peer,  -- Of point-to-point calls: the other rank; else NULL.
    CAST(algorithm AS VARCHAR) AS algorithm,  -- RING, TREE, …; NULL before format v4.1.
    CAST(protocol AS VARCHAR) AS protocol,  -- LL, LL128, SIMPLE; NULL before format v4.1.
    CAST(size_bytes AS BIGINT) AS size_bytes,  -- Size of the message, bytes.
    CAST(duration_ns AS BIGINT) AS duration_ns,  -- How long it ran on this rank, waiting included, to the us, ns.
    -- Clock of the duration: kernel_gpu, kernel_cpu or collective_cpu (the host saw it begin and end: less exact).
    CAST(timing_source AS VARCHAR) AS timing_source,
    -- Bandwidth of the algorithm, GB/s.
    CAST(algorithm_gigabytes_per_s AS DOUBLE) AS algorithm_gigabytes_per_s,
    CAST(bus_gigabytes_per_s AS DOUBLE) AS bus_gigabytes_per_s,  -- Bandwidth of the bus, GB/s, as nccl-tests define it.
    -- When the plugin wrote it, ns since the Unix epoch; it ended before that, by up to the interval of dumps.
    CAST(dumped_ns AS BIGINT) AS dumped_ns,
    -- When it was enqueued, ns since the Unix epoch; NULL without NCCL_INSPECTOR_DUMP_VERBOSE=1.
    CAST(enqueued_ns AS BIGINT) AS enqueued_ns
FROM _staged_inspector_collectives
