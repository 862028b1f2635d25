-- One row: a communication kernel of a rank, the bandwidth that it had at least, and the time that its links would take.
-- How: nccl-tests: S, the bytes of the larger side, over the duration, times the factor of the kind. The duration holds waiting for late ranks, so one rank's bandwidth is a lower bound; collectives has that of all ranks.
-- check: unique(trace_id, event_id)
WITH told AS (
    SELECT
        a.trace_id, a.event_id, z.size_bytes,
        greatest(
            TRY_CAST(a.args ->> '$."In msg nelems"' AS BIGINT), TRY_CAST(a.args ->> '$."Out msg nelems"' AS BIGINT)
        ) AS n_elements
    FROM _collective_args AS a
    LEFT JOIN element_sizes AS z ON z.dtype = lower(a.args ->> '$.dtype')
),
-- Ranks are written in order, "[0, 1]"; a long list is cut, and has no last one.
placed AS (
    SELECT
        k.trace_id, k.event_id, k.name, k.kind, k.device, k.stream, k.step, k.ts_ns, k.dur_ns, k.launch_event_id,
        k.collective_name, k.group_name, k.group_size, t.n_elements * t.size_bytes AS bytes,
        TRY_CAST(regexp_extract(k.group_ranks, '^\[([0-9]+)', 1) AS BIGINT) // r.device_count AS first_node,
        TRY_CAST(regexp_extract(k.group_ranks, '([0-9]+)\]$', 1) AS BIGINT) // r.device_count AS last_node,
        k.group_size > r.device_count AS is_larger_than_a_node,
        d.device_key, v.link_gbs_unidir, CAST(n.nic_gbs_unidir AS DOUBLE) AS nic_gbs_unidir, n.latency_ns,
        CASE WHEN c.bus_numerator = 0 THEN 1.0 ELSE c.bus_numerator * (k.group_size - 1.0) / nullif(k.group_size, 0) END AS factor
    FROM collective_kernels AS k
    JOIN traces AS r ON r.trace_id = k.trace_id
    JOIN collective_kinds AS c ON c.kind = k.kind
    CROSS JOIN network AS n
    LEFT JOIN told AS t ON t.trace_id = k.trace_id AND t.event_id = k.event_id
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
            WHEN spans_nodes THEN CASE WHEN nic_gbs_unidir IS NOT NULL THEN least(link_gbs_unidir, nic_gbs_unidir) END
            WHEN NOT spans_nodes THEN link_gbs_unidir
        END AS limit_gbps
    FROM linked
)
SELECT
    trace_id,  -- The trace.
    event_id,  -- The kernel's position in traceEvents.
    name,  -- Name of the kernel.
    kind,  -- Kind of the collective, as in collective_kinds.
    collective_name,  -- Name in the framework; NULL where the trace does not tell.
    group_name,  -- Process group; NULL where the trace does not tell.
    group_size,  -- Ranks in the group; NULL where the trace does not tell.
    device,  -- Device it ran on.
    stream,  -- Stream on the device.
    step,  -- Profiler step of its launch; NULL outside of steps.
    launch_event_id,  -- The CPU call that launched it; NULL when that is not in the trace.
    ts_ns,  -- Start, ns.
    dur_ns,  -- Duration, ns: waiting for other ranks and transfer together.
    bytes,  -- S: bytes of the larger of input and output on this rank; NULL where the trace does not tell, or for a type that is not known.
    factor,  -- Factor of the kind: 2(n-1)/n allreduce, (n-1)/n allgather, reducescatter, alltoall, gather, scatter, 1 the others; NULL where the group's size is needed and not known.
    CAST(bytes AS DOUBLE) / nullif(dur_ns, 0) AS algbw_gbps,  -- S over duration, decimal GB/s; NULL without S or duration.
    CASE WHEN group_size > 1 THEN CAST(bytes AS DOUBLE) / nullif(dur_ns, 0) * factor END AS busbw_lower_gbps,  -- The same times the factor: what each link carried at least, decimal GB/s; NULL for a group of one, too.
    spans_nodes,  -- The group's ranks are on several nodes, of as many ranks as the host has devices; NULL where that cannot be told.
    limit_gbps,  -- What a rank's links can carry, one direction, decimal GB/s: its device's links, across nodes the slower of these and the network's; NULL for an unknown device or network.
    CASE WHEN group_size > 1 THEN CAST(bytes AS DOUBLE) / nullif(dur_ns, 0) * factor / limit_gbps END AS link_utilization,  -- busbw_lower_gbps over limit_gbps, not clipped; NULL where one of them is.
    CASE WHEN group_size = 1 THEN 0.0 ELSE bytes * factor / limit_gbps + latency_ns END AS ideal_ns  -- Time with all links full, ns: S times factor over limit_gbps, and the latency; 0 for a group of one, NULL where a part is not known.
FROM limited
