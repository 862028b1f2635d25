-- One row: a device of a memory snapshot, with its memory in use and reserved at the snapshot and at the peak, and in
-- use when the history begins.
-- scope: memory_snapshot
-- check: unique(snapshot_id, device)
WITH devices AS (
    SELECT snapshot_id, batch_id, device FROM snapshot_segments
    UNION
    SELECT snapshot_id, batch_id, device FROM snapshot_timeline
),
used AS (
    SELECT snapshot_id, device, sum(coalesce(requested_bytes, size_bytes)) AS end_bytes
    FROM snapshot_blocks
    WHERE state <> 'inactive'
    GROUP BY snapshot_id, device
),
held AS (
    SELECT snapshot_id, device, sum(total_bytes) AS end_bytes
    FROM snapshot_segments
    GROUP BY snapshot_id, device
),
levels AS (
    SELECT snapshot_id, device, seq, at_ns, allocated_bytes, reserved_bytes FROM snapshot_timeline
    UNION ALL
    SELECT
        snapshot_id, device, -1 AS seq, NULL AS at_ns, allocated_bytes - allocated_delta_bytes,
        reserved_bytes - reserved_delta_bytes
    FROM snapshot_timeline
    WHERE seq = 0
),
ranked AS (
    SELECT
        snapshot_id, device, seq, at_ns, allocated_bytes,
        row_number() OVER (PARTITION BY snapshot_id, device ORDER BY allocated_bytes DESC, seq) AS place
    FROM levels
),
most AS (
    SELECT
        snapshot_id, device, max(reserved_bytes) AS reserved_bytes, min(allocated_bytes) AS least_bytes,
        max(CASE WHEN seq = -1 THEN allocated_bytes END) AS first_bytes
    FROM levels
    GROUP BY snapshot_id, device
),
counts AS (
    SELECT
        snapshot_id, device,
        count(CASE WHEN action = 'alloc' THEN 1 END) AS n_allocs,
        count(CASE WHEN action = 'oom' THEN 1 END) AS n_ooms
    FROM snapshot_events
    GROUP BY snapshot_id, device
),
lost AS (
    SELECT a.snapshot_id, a.device, count(*) AS n_lost
    FROM snapshot_allocations AS a
    LEFT JOIN snapshot_blocks AS b
        ON b.snapshot_id = a.snapshot_id AND b.device = a.device AND b.address = a.address AND b.state <> 'inactive'
    WHERE a.alloc_seq IS NOT NULL AND a.state = 'live' AND b.snapshot_id IS NULL
    GROUP BY a.snapshot_id, a.device
)
SELECT
    d.snapshot_id,  -- The snapshot.
    d.batch_id,  -- Ingest run that wrote it.
    d.device,  -- Device number.
    CAST(coalesce(u.end_bytes, 0) AS BIGINT) AS allocated_bytes,  -- In use at the snapshot, as requested, bytes.
    CAST(coalesce(h.end_bytes, 0) AS BIGINT) AS reserved_bytes,  -- Reserved by the allocator at the snapshot, bytes.
    m.first_bytes AS first_allocated_bytes,  -- In use when the history begins, bytes; NULL without a history.
    -- Maximum in use within the history, bytes; NULL without a history. A higher peak may have occurred before the
    -- history begins.
    p.allocated_bytes AS peak_allocated_bytes,
    m.reserved_bytes AS peak_reserved_bytes,  -- Maximum reserved within the history, bytes; NULL without a history.
    -- First event after which that maximum was in use; -1 for the start of the history; NULL without a history.
    p.seq AS peak_seq,
    p.at_ns AS peak_ns,  -- Time of that event, ns since the Unix epoch; NULL if it has none.
    coalesce(c.n_allocs, 0) AS n_allocs,  -- Number of allocations in the history.
    coalesce(c.n_ooms, 0) AS n_ooms,  -- Number of allocations that failed because the device was full.
    -- Number of allocations in use at the end of the history, but not in the snapshot. Above 0, the history ends before
    -- the snapshot or misses releases, so the levels before the snapshot are wrong.
    coalesce(l.n_lost, 0) AS n_contradictions,
    -- Whether the history fits the snapshot: no contradictions, and never a negative amount in use; NULL without a
    -- history.
    coalesce(l.n_lost, 0) = 0 AND m.least_bytes >= 0 AS is_consistent
FROM devices AS d
LEFT JOIN used AS u ON u.snapshot_id = d.snapshot_id AND u.device = d.device
LEFT JOIN held AS h ON h.snapshot_id = d.snapshot_id AND h.device = d.device
LEFT JOIN most AS m ON m.snapshot_id = d.snapshot_id AND m.device = d.device
LEFT JOIN ranked AS p ON p.snapshot_id = d.snapshot_id AND p.device = d.device AND p.place = 1
LEFT JOIN counts AS c ON c.snapshot_id = d.snapshot_id AND c.device = d.device
LEFT JOIN lost AS l ON l.snapshot_id = d.snapshot_id AND l.device = d.device
