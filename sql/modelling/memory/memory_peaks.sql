-- One row: a device of a trace, with its memory peaks and the pairing of allocations and releases.
-- How: memory_timeline supplies the peaks, memory_blocks the pairs. Values that the trace does not record are NULL.
-- check: unique(trace_id, device_type, device)
WITH peaks AS (
    SELECT
        trace_id, device_type, device,
        count(*) AS n_events,
        count(*) FILTER (WHERE delta_bytes > 0) AS n_allocs,
        count(*) FILTER (WHERE delta_bytes < 0) AS n_frees,
        count(*) FILTER (WHERE delta_ok) AS n_delta_ok,
        count(*) FILTER (WHERE NOT delta_ok) AS n_delta_bad,
        max(CASE WHEN seq = 1 THEN allocated_bytes END) AS first_allocated_bytes,
        max(allocated_bytes) AS peak_allocated_bytes,
        max(reserved_bytes) AS peak_reserved_bytes,
        CASE WHEN max(net_bytes) IS NOT NULL THEN greatest(max(net_bytes), 0) END AS peak_relative_bytes,
        TRY_CAST(sum(delta_bytes) AS BIGINT) AS net_bytes,
        count(address) AS n_addresses
    FROM memory_timeline
    GROUP BY trace_id, device_type, device
),
peak_events AS (
    SELECT
        trace_id, device_type, device,
        CASE WHEN net_bytes > 0 THEN seq WHEN net_bytes IS NOT NULL THEN 0 END AS peak_seq,
        CASE WHEN net_bytes > 0 THEN at_ns END AS peak_ns
    FROM memory_timeline
    QUALIFY row_number() OVER (PARTITION BY trace_id, device_type, device ORDER BY net_bytes DESC, seq) = 1
),
pairs AS (
    SELECT
        trace_id, device_type, device,
        count(*) FILTER (WHERE state = 'live') AS n_live,
        TRY_CAST(sum(size_bytes) FILTER (WHERE state = 'live') AS BIGINT) AS live_bytes,
        count(*) FILTER (WHERE state = 'before_trace') AS n_before_trace,
        count(*) FILTER (WHERE state = 'release_missing') AS n_release_missing,
        count(*) FILTER (WHERE state = 'size_mismatch') AS n_size_mismatch
    FROM memory_blocks
    GROUP BY trace_id, device_type, device
)
SELECT
    p.trace_id,  -- The trace.
    p.device_type,  -- PyTorch's number for the kind of device: 0 CPU, 1 CUDA, 6 HIP.
    p.device,  -- Device number; -1 for the CPU.
    p.n_events,  -- Allocations and releases.
    p.n_allocs,  -- Allocations.
    p.n_frees,  -- Releases.
    p.first_allocated_bytes,  -- Memory in use after the first event, bytes; NULL if not recorded.
    p.peak_allocated_bytes,  -- Peak memory in use, bytes; NULL if not recorded.
    p.peak_reserved_bytes,  -- Peak memory reserved by the allocator, bytes; NULL if not recorded.
    -- Peak memory in use, minus the memory in use at the start of the trace, bytes; NULL if no event records its bytes.
    p.peak_relative_bytes,
    -- Position in memory_timeline (seq) of the first event after which that peak was in use; 0 for the start of the
    -- trace; NULL if no event records its bytes.
    t.peak_seq,
    t.peak_ns,  -- Time of that event, ns; NULL without such an event, and for the start of the trace.
    -- Memory in use at the end, minus the memory in use at the start of the trace, bytes; NULL if no event records its
    -- bytes.
    p.net_bytes,
    -- Blocks allocated in the trace and not released by its end; NULL where the trace has no addresses.
    CASE WHEN p.n_addresses > 0 THEN coalesce(b.n_live, 0) END AS n_live,
    -- Bytes of these blocks; NULL where the trace has no addresses.
    CASE WHEN p.n_addresses > 0 THEN coalesce(b.live_bytes, 0) END AS live_bytes,
    -- Released blocks that were allocated before the trace.
    CASE WHEN p.n_addresses > 0 THEN coalesce(b.n_before_trace, 0) END AS n_before_trace,
    -- Blocks whose address was allocated again without a release in between.
    CASE WHEN p.n_addresses > 0 THEN coalesce(b.n_release_missing, 0) END AS n_release_missing,
    -- Blocks released with a different size.
    CASE WHEN p.n_addresses > 0 THEN coalesce(b.n_size_mismatch, 0) END AS n_size_mismatch,
    p.n_delta_ok,  -- Events whose bytes equal the change of the allocator's totals.
    p.n_delta_bad  -- Events whose bytes differ from that change; they are also counted in quality.
FROM peaks AS p
JOIN peak_events AS t
    ON t.trace_id = p.trace_id AND t.device_type IS NOT DISTINCT FROM p.device_type
        AND t.device IS NOT DISTINCT FROM p.device
LEFT JOIN pairs AS b
    ON b.trace_id = p.trace_id AND b.device_type IS NOT DISTINCT FROM p.device_type
        AND b.device IS NOT DISTINCT FROM p.device
