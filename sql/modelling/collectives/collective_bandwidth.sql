-- One row: a communication kernel of a rank, with a lower bound of its bandwidth and its time at full link bandwidth.
-- How: as in nccl-tests, the bandwidth is S, the bytes of the larger side, divided by the duration, times the factor of
-- the kind. The duration includes waiting for late ranks, so one rank's bandwidth is a lower bound. Table collectives
-- has the bandwidth over all ranks.
-- check: unique(trace_id, event_id)
WITH kinds AS (
    SELECT DISTINCT kind, bus_numerator FROM collective_kinds
),
sizes AS (
    SELECT
        a.trace_id, a.event_id, z.size_bytes,
        greatest(
            TRY_CAST(a.args ->> '$."In msg nelems"' AS BIGINT), TRY_CAST(a.args ->> '$."Out msg nelems"' AS BIGINT)
        ) AS n_elements
    FROM _collective_args AS a
    LEFT JOIN element_sizes AS z ON z.dtype = lower(a.args ->> '$.dtype')
),
-- The trace lists ranks in order, "[0, 1]". A long list is truncated, so its last rank is missing.
placed AS (
    SELECT
        k.trace_id, k.event_id, k.name, k.kind, k.device, k.stream, k.step, k.start_ns, k.duration_ns,
        k.launch_event_id,
        k.collective_name, k.group_name, k.group_size,
        CASE WHEN t.n_elements BETWEEN 0 AND 9223372036854775807 // t.size_bytes THEN t.n_elements * t.size_bytes END
            AS bytes,
        TRY_CAST(regexp_extract(k.group_ranks, '^\[([0-9]+)', 1) AS BIGINT) // r.device_count AS first_node,
        TRY_CAST(regexp_extract(k.group_ranks, '([0-9]+)\]$', 1) AS BIGINT) // r.device_count AS last_node,
        k.group_size > r.device_count AS is_larger_than_a_node,
        d.device_key, v.link_unidirectional_gigabytes_per_s,
        CAST(n.nic_unidirectional_gigabytes_per_s AS DOUBLE) AS nic_unidirectional_gigabytes_per_s, n.latency_ns,
        CASE
            WHEN c.bus_numerator = 0 THEN 1e0
            ELSE c.bus_numerator * (k.group_size - 1e0) / nullif(k.group_size, 0)
        END AS factor
    FROM collective_kernels AS k
    JOIN traces AS r ON r.trace_id = k.trace_id
    JOIN kinds AS c ON c.kind = k.kind
    CROSS JOIN network AS n
    LEFT JOIN sizes AS t ON t.trace_id = k.trace_id AND t.event_id = k.event_id
    LEFT JOIN _work_devices AS d ON d.trace_id = k.trace_id AND d.device = k.device
    LEFT JOIN devices AS v ON v.device_key = d.device_key
),
linked AS (
    SELECT
        *,
        CASE
            WHEN is_larger_than_a_node THEN TRUE
            WHEN group_size = 1 THEN FALSE
            ELSE first_node <> last_node
        END AS spans_nodes
    FROM placed
),
limited AS (
    SELECT
        *,
        CASE
            WHEN
                spans_nodes
                THEN CASE
                    WHEN
                        nic_unidirectional_gigabytes_per_s IS NOT NULL
                        THEN least(link_unidirectional_gigabytes_per_s, nic_unidirectional_gigabytes_per_s)
                END
            WHEN NOT spans_nodes THEN link_unidirectional_gigabytes_per_s
        END AS limit_gigabytes_per_s
    FROM linked
)
SELECT
    trace_id,  -- The trace.
    event_id,  -- Position of the kernel in traceEvents.
    name,  -- Name of the kernel.
    kind,  -- Kind of the collective, as in collective_kinds.
    collective_name,  -- Name in the framework; NULL if not recorded.
    group_name,  -- Process group; NULL if not recorded.
    group_size,  -- Ranks in the group; NULL if not recorded.
    device,  -- Device of the kernel.
    stream,  -- Stream on the device.
    step,  -- Profiler step of its launch; NULL outside of steps.
    launch_event_id,  -- Launch call; NULL if it is not in the trace.
    start_ns,  -- Start, ns.
    duration_ns,  -- Duration, ns: includes both the transfer and waiting for other ranks.
    -- S: bytes of the larger of input and output on this rank; NULL if not recorded or out of range, or for an unknown
    -- type.
    bytes,
    -- Factor of the kind: 2(n-1)/n for allreduce, (n-1)/n for allgather, reducescatter, alltoall, gather and scatter, 1
    -- for others; NULL if the group's size is needed and unknown.
    factor,
    -- S divided by the duration, decimal GB/s; NULL without S or duration.
    CAST(bytes AS DOUBLE) / nullif(duration_ns, 0) AS algbw_gigabytes_per_s,
    -- The algorithm bandwidth times the factor, decimal GB/s: a lower bound of each link's throughput; also NULL for a
    -- group of one.
    CASE WHEN group_size > 1 THEN CAST(bytes AS DOUBLE) / nullif(duration_ns, 0) * factor END
        AS busbw_lower_gigabytes_per_s,
    -- True if the group's ranks are on several nodes, assuming that each node has as many ranks as the host has
    -- devices; NULL where unknown.
    spans_nodes,
    -- Bandwidth of a rank's links in one direction, decimal GB/s: its device's links, or across nodes the slower of
    -- these and the network; NULL for an unknown device or network.
    limit_gigabytes_per_s,
    -- busbw_lower_gigabytes_per_s divided by limit_gigabytes_per_s, not clipped; NULL where either is NULL.
    CASE
        WHEN group_size > 1 THEN CAST(bytes AS DOUBLE) / nullif(duration_ns, 0) * factor / limit_gigabytes_per_s
    END AS link_utilization,
    -- Time at full link bandwidth, ns: S times the factor divided by limit_gigabytes_per_s, plus the latency; 0 for a
    -- group of one, NULL where a part is unknown.
    CASE WHEN group_size = 1 THEN 0.0 ELSE bytes * factor / limit_gigabytes_per_s + latency_ns END AS ideal_ns
FROM limited
