-- Question: Which ranks do the others wait for in collectives, day after day?
-- Reading: From logs of the NCCL Inspector, by rank of a communicator and UTC day. The rank that ran a collective for
-- the shortest time came last. `median_bus_gb_per_s` is the median over the rank's collectives, including waiting.
-- `n_incomplete` counts collectives for which some ranks have no log, or no duration of the kernel. In these, another
-- rank may have come last.
-- Words: straggler, slow rank
SELECT
    DATE '1970-01-01' + CAST(dumped_ns // 86400000000000 AS INTEGER) AS day,
    job, communicator_name, communicator_id, rank, host,
    count(*) AS n_collectives, count(CASE WHEN is_last THEN 1 END) AS n_last,
    round(sum(caused_wait_ns) / 1e6, 2) AS caused_wait_ms, round(sum(waited_ns) / 1e6, 2) AS waited_ms,
    round(median(CASE WHEN coalesce(timing_source, '') <> 'collective_cpu' THEN bus_gigabytes_per_s END), 1)
        AS median_bus_gb_per_s,
    count(CASE WHEN n_timed < n_ranks THEN 1 END) AS n_incomplete
FROM inspector_matches
GROUP BY
    DATE '1970-01-01' + CAST(dumped_ns // 86400000000000 AS INTEGER),
    job, communicator_name, communicator_id, rank, host
ORDER BY sum(caused_wait_ns) DESC NULLS LAST, day, job, communicator_id, rank, host
