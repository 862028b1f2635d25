-- One row: a kind and size of communication kernels of a rank, in groups of one size over the same links, with their
-- combined bandwidth.
-- How: ratios of sums over collective_bandwidth, not means of bandwidths. Durations include waiting for late ranks, so
-- bandwidths are lower bounds.
-- check: unique(trace_id, kind, bytes, group_size, spans_nodes, limit_gigabytes_per_s)
WITH summed AS (
    SELECT
        trace_id, kind, bytes, group_size, spans_nodes, limit_gigabytes_per_s,
        count(*) AS n, TRY_CAST(sum(duration_ns) AS BIGINT) AS duration_ns, sum(ideal_ns) AS ideal_ns,
        TRY_CAST(sum(bytes) AS DOUBLE) AS moved, max(CASE WHEN group_size > 1 THEN factor END) AS factor
    FROM collective_bandwidth
    GROUP BY trace_id, kind, bytes, group_size, spans_nodes, limit_gigabytes_per_s
)
SELECT
    trace_id,  -- The trace.
    kind,  -- Kind of the collective, as in collective_kinds.
    bytes,  -- Bytes of the larger side of each kernel; NULL if not recorded, or if the type's size is unknown.
    group_size,  -- Ranks in the group; NULL if not recorded.
    spans_nodes,  -- True if the group's ranks are on several nodes; NULL where unknown.
    limit_gigabytes_per_s,  -- Bandwidth of the links, GB/s; NULL where they are unknown.
    n,  -- Kernels.
    duration_ns,  -- Summed duration of the kernels, ns.
    ideal_ns,  -- Time at full link bandwidth, ns; NULL where size or links are unknown.
    moved / nullif(duration_ns, 0) AS algbw_gigabytes_per_s,  -- Bytes over time, GB/s.
    -- algbw_gigabytes_per_s times the factor of the kind, GB/s; NULL for a group of one.
    moved * factor / nullif(duration_ns, 0) AS busbw_lower_gigabytes_per_s,
    -- busbw_lower_gigabytes_per_s divided by limit_gigabytes_per_s, not clipped.
    moved * factor / nullif(duration_ns, 0) / limit_gigabytes_per_s AS link_utilization,
    -- True if link_utilization is above threshold('ideal_suspect'): sizes or links are wrong.
    coalesce(
        moved * factor / nullif(duration_ns, 0) / limit_gigabytes_per_s > threshold('ideal_suspect'), FALSE
    ) AS suspect
FROM summed
