-- One row: an event of a memory snapshot's history, with the memory in use and reserved after it.
-- How: subtract the changes by later events from the sums in use and reserved at the snapshot. A release counts at its
-- completion; if only requests are recorded, at its request.
-- scope: memory_snapshot
-- check: unique(snapshot_id, device, seq)
WITH release_actions AS (
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
moves AS (
    SELECT
        e.snapshot_id, e.batch_id, e.device, e.seq, e.at_ns, e.action,
        CASE
            WHEN e.action = 'alloc' THEN e.size_bytes
            WHEN e.action = r.release_action AND p.seq IS NULL THEN -e.size_bytes
            ELSE 0
        END AS allocated_delta,
        CASE
            WHEN e.action IN ('segment_alloc', 'segment_map') THEN e.size_bytes
            WHEN e.action IN ('segment_free', 'segment_unmap') THEN -e.size_bytes
            ELSE 0
        END AS reserved_delta
    FROM snapshot_events AS e
    JOIN release_actions AS r ON r.snapshot_id = e.snapshot_id AND r.device = e.device
    LEFT JOIN pending AS p ON p.snapshot_id = e.snapshot_id AND p.device = e.device AND p.seq = e.seq
),
sums AS (
    SELECT
        snapshot_id, batch_id, device, seq, at_ns, action, allocated_delta, reserved_delta,
        sum(allocated_delta) OVER (
            PARTITION BY snapshot_id, device ORDER BY seq ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        ) - sum(allocated_delta) OVER (PARTITION BY snapshot_id, device) AS allocated_before_end,
        sum(reserved_delta) OVER (
            PARTITION BY snapshot_id, device ORDER BY seq ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        ) - sum(reserved_delta) OVER (PARTITION BY snapshot_id, device) AS reserved_before_end
    FROM moves
)
SELECT
    s.snapshot_id,  -- The snapshot.
    s.batch_id,  -- Ingest run that wrote it.
    s.device,  -- Device number.
    s.seq,  -- The event, in snapshot_events.
    s.at_ns,  -- Time, ns since the Unix epoch; NULL before PyTorch 2.1.
    s.action,  -- Kind of event, as in snapshot_events.
    TRY_CAST(s.allocated_delta AS BIGINT) AS allocated_delta_bytes,  -- Change of the memory in use, bytes.
    TRY_CAST(s.reserved_delta AS BIGINT) AS reserved_delta_bytes,  -- Change of the reserved memory, bytes.
    -- In use after the event, as requested, before rounding, bytes.
    TRY_CAST(coalesce(u.end_bytes, 0) + s.allocated_before_end AS BIGINT) AS allocated_bytes,
    -- Reserved by the allocator after the event, bytes.
    TRY_CAST(coalesce(h.end_bytes, 0) + s.reserved_before_end AS BIGINT) AS reserved_bytes
FROM sums AS s
LEFT JOIN used AS u ON u.snapshot_id = s.snapshot_id AND u.device = s.device
LEFT JOIN held AS h ON h.snapshot_id = s.snapshot_id AND h.device = s.device
