-- One row: an allocation in a memory snapshot, from its history or from its blocks in use.
-- How: follow the events of each address in the order of the history. A block in use without an allocation in the
-- history was allocated before it.
-- scope: memory_snapshot
-- check: unique(snapshot_id, allocation_id)
WITH moves AS (
    SELECT
        snapshot_id, batch_id, device, seq, action, address, size_bytes, stream, at_ns, pool_id, stack_id,
        lag(action) OVER by_address AS action_before,
        lead(action) OVER by_address AS action_1,
        lead(seq) OVER by_address AS seq_1,
        lead(at_ns) OVER by_address AS ns_1,
        lead(action, 2) OVER by_address AS action_2,
        lead(seq, 2) OVER by_address AS seq_2,
        lead(at_ns, 2) OVER by_address AS ns_2
    FROM snapshot_events
    WHERE action IN ('alloc', 'free_requested', 'free_completed')
    WINDOW by_address AS (PARTITION BY snapshot_id, batch_id, device, address ORDER BY seq)
),
release_actions AS (
    -- If only the requests of releases are recorded (`skip_actions`), a release counts from its request.
    SELECT
        snapshot_id, device,
        CASE
            WHEN count(CASE WHEN action = 'free_completed' THEN 1 END) > 0 THEN 'free_completed' ELSE 'free_requested'
        END AS release_action
    FROM snapshot_events
    GROUP BY snapshot_id, device
),
pending AS (
    -- A request does not release memory that other streams still used at the snapshot. This applies to both kinds of
    -- recorded releases.
    SELECT e.snapshot_id, e.device, max(e.seq) AS seq
    FROM snapshot_events AS e
    JOIN snapshot_blocks AS b ON b.snapshot_id = e.snapshot_id AND b.device = e.device AND b.address = e.address
    WHERE e.action = 'free_requested' AND b.state IN ('active_pending_free', 'active_awaiting_free')
    GROUP BY e.snapshot_id, e.device, e.address
),
seen AS (
    SELECT
        m.snapshot_id, m.batch_id, m.device, m.address, m.size_bytes, m.stream, m.pool_id, r.release_action,
        CASE WHEN m.action = 'alloc' THEN m.stack_id END AS stack_id,
        CASE WHEN m.action = 'alloc' THEN m.seq END AS alloc_seq,
        CASE WHEN m.action = 'alloc' THEN m.at_ns END AS alloc_ns,
        CASE
            WHEN m.action = 'free_requested' THEN m.seq
            WHEN m.action = 'alloc' AND m.action_1 = 'free_requested' THEN m.seq_1
        END AS requested_seq,
        CASE
            WHEN m.action = 'free_requested' THEN m.at_ns
            WHEN m.action = 'alloc' AND m.action_1 = 'free_requested' THEN m.ns_1
        END AS requested_ns,
        CASE
            WHEN m.action = 'free_completed' THEN m.seq
            WHEN m.action_1 = 'free_completed' THEN m.seq_1
            WHEN m.action = 'alloc' AND m.action_1 = 'free_requested' AND m.action_2 = 'free_completed' THEN m.seq_2
        END AS completed_seq,
        CASE
            WHEN m.action = 'free_completed' THEN m.at_ns
            WHEN m.action_1 = 'free_completed' THEN m.ns_1
            WHEN m.action = 'alloc' AND m.action_1 = 'free_requested' AND m.action_2 = 'free_completed' THEN m.ns_2
        END AS completed_ns,
        CASE WHEN m.action = 'alloc' AND m.action_1 = 'alloc' THEN m.seq_1 END AS again_seq
    FROM moves AS m
    JOIN release_actions AS r ON r.snapshot_id = m.snapshot_id AND r.device = m.device
    WHERE m.action = 'alloc' OR m.action_before IS NULL
),
ended AS (
    SELECT
        s.snapshot_id, s.batch_id, s.device, s.address, s.size_bytes, s.stream, s.pool_id, s.stack_id, s.alloc_seq,
        s.alloc_ns, s.requested_ns, s.again_seq,
        CASE
            WHEN s.release_action = 'free_completed' THEN s.completed_seq
            WHEN p.seq IS NULL THEN s.requested_seq
        END AS free_seq,
        CASE
            WHEN s.release_action = 'free_completed' THEN s.completed_ns
            WHEN p.seq IS NULL THEN s.requested_ns
        END AS free_ns
    FROM seen AS s
    LEFT JOIN pending AS p ON p.snapshot_id = s.snapshot_id AND p.device = s.device AND p.seq = s.requested_seq
),
in_use AS (
    SELECT
        b.snapshot_id, b.batch_id, b.device, b.address, coalesce(b.requested_bytes, b.size_bytes) AS size_bytes,
        s.stream, s.pool_id, b.stack_id
    FROM snapshot_blocks AS b
    JOIN snapshot_segments AS s ON s.snapshot_id = b.snapshot_id AND s.segment_id = b.segment_id
    WHERE b.state <> 'inactive'
),
never_seen AS (
    SELECT u.snapshot_id, u.batch_id, u.device, u.address, u.size_bytes, u.stream, u.pool_id, u.stack_id
    FROM in_use AS u
    LEFT JOIN ended AS e
        ON e.snapshot_id = u.snapshot_id AND e.device = u.device AND e.address = u.address
            AND e.free_seq IS NULL AND e.again_seq IS NULL
    WHERE e.snapshot_id IS NULL
),
everything AS (
    SELECT
        snapshot_id, batch_id, device, address, size_bytes, stream, pool_id, stack_id, alloc_seq, alloc_ns,
        requested_ns, free_seq, free_ns, again_seq
    FROM ended
    UNION ALL
    SELECT
        snapshot_id, batch_id, device, address, size_bytes, stream, pool_id, stack_id, NULL, NULL, NULL, NULL,
        NULL, NULL
    FROM never_seen
)
SELECT
    snapshot_id,  -- The snapshot.
    batch_id,  -- Ingest run that wrote it.
    -- Number in the snapshot, from 1, by device, then by position in the history; earlier allocations come first.
    row_number() OVER (
        PARTITION BY snapshot_id ORDER BY device, coalesce(alloc_seq, -1), address, coalesce(free_seq, -1)
    ) AS allocation_id,
    device,  -- Device number.
    address,  -- Address, negative from 2^63 on (Intel GPUs).
    size_bytes,  -- Requested size, bytes, before rounding.
    stream,  -- Handle of its stream.
    pool_id,  -- Pool of memory; NULL if the file has none.
    alloc_seq,  -- Its event in snapshot_events; NULL if it was allocated before the history begins.
    alloc_ns,  -- Time of allocation, ns since the Unix epoch; NULL if the history does not show it.
    -- Time at which its tensor was freed, ns; NULL if it was not freed, or if the history does not show it.
    requested_ns AS free_requested_ns,
    free_seq,  -- Event of its release in snapshot_events; NULL if it was not released.
    free_ns,  -- Time from which its memory could be reused, ns; NULL if the history does not show it.
    free_ns - alloc_ns AS lifetime_ns,  -- Time from allocation to release, ns; NULL if either is missing.
    -- released; live: in use in the snapshot; before_history: allocated before the history begins, in use or released
    -- since; release_missing: its address was allocated again without a release in between.
    CASE
        WHEN alloc_seq IS NULL THEN 'before_history'
        WHEN free_seq IS NOT NULL THEN 'released'
        WHEN again_seq IS NOT NULL THEN 'release_missing'
        ELSE 'live'
    END AS state,
    stack_id  -- Stack of the allocation, in snapshot_stacks; NULL if not recorded.
FROM everything
