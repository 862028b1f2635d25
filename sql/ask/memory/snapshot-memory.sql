-- Question: How much GPU memory was in use, reserved and lost on each device of a memory snapshot, and when was it
-- most?
-- Reading: `peak_seq` and `peak_reserved_seq` are the event numbers after which the history has its maximum (-1: when
-- the history begins; NULL: without a history). `rounding`, `pending` (another stream still uses it), `releasable` and
-- `stuck` are reserved, but not in use by a tensor, as in `snapshot-fragmentation`. If `is_consistent` is false, the
-- history does not fit the snapshot.
-- Words: OOM, out of memory
WITH reserved AS (
    SELECT snapshot_id, device, seq, at_ns, reserved_bytes FROM snapshot_timeline
    UNION ALL
    SELECT snapshot_id, device, -1, NULL, reserved_bytes - reserved_delta_bytes
    FROM snapshot_timeline
    WHERE seq = 0
),
most AS (
    SELECT
        snapshot_id, device, seq, at_ns,
        row_number() OVER (PARTITION BY snapshot_id, device ORDER BY reserved_bytes DESC, seq) AS place
    FROM reserved
),
segments AS (
    SELECT
        snapshot_id, device, count(*) AS n_segments, sum(used_bytes) AS used_bytes,
        sum(rounding_bytes) AS rounding_bytes, sum(pending_bytes) AS pending_bytes,
        sum(CASE WHEN is_free THEN free_bytes ELSE 0 END) AS releasable_bytes,
        sum(CASE WHEN is_free THEN 0 ELSE free_bytes END) AS stuck_bytes,
        max(largest_free_bytes) AS largest_free_bytes
    FROM snapshot_fragmentation
    GROUP BY snapshot_id, device
)
SELECT
    m.job, m.rank, m.file, p.device, p.allocated_bytes, p.reserved_bytes, p.first_allocated_bytes,
    p.peak_allocated_bytes, p.peak_reserved_bytes, p.peak_seq, p.peak_ns, r.seq AS peak_reserved_seq,
    r.at_ns AS peak_reserved_ns, s.n_segments, CAST(s.used_bytes AS BIGINT) AS used_bytes,
    CAST(s.rounding_bytes AS BIGINT) AS rounding_bytes, CAST(s.pending_bytes AS BIGINT) AS pending_bytes,
    CAST(s.releasable_bytes AS BIGINT) AS releasable_bytes, CAST(s.stuck_bytes AS BIGINT) AS stuck_bytes,
    s.largest_free_bytes, p.n_allocs, p.n_ooms, p.n_contradictions, p.is_consistent
FROM snapshot_peaks AS p
JOIN memory_snapshots AS m ON m.snapshot_id = p.snapshot_id
LEFT JOIN most AS r ON r.snapshot_id = p.snapshot_id AND r.device = p.device AND r.place = 1
LEFT JOIN segments AS s ON s.snapshot_id = p.snapshot_id AND s.device = p.device
ORDER BY m.job, m.rank, m.file, p.snapshot_id, p.device
