-- One row: a stretch of a device's time that belongs to GPU work from before the trace: such work ran, or nothing of
-- the trace did and the path waits for such work.
WITH parts AS (
    SELECT trace_id, device, start_ns, end_ns FROM _earlier_work WHERE duration_ns > 0
    UNION ALL
    SELECT trace_id, device, start_ns, end_ns FROM idle_causes WHERE cause = 'earlier_work'
),
reached AS (
    SELECT
        *,
        max(end_ns) OVER (
            PARTITION BY trace_id, device ORDER BY start_ns, end_ns ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS reached_ns
    FROM parts
)
SELECT
    trace_id,  -- The trace.
    device,  -- The device.
    greatest(start_ns, coalesce(reached_ns, start_ns)) AS start_ns,  -- Start, ns.
    end_ns  -- End, ns.
FROM reached
WHERE reached_ns IS NULL OR end_ns > reached_ns
