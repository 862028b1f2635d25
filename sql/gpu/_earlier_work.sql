-- One row: a GPU activity that was launched before the trace began.
-- How: GPU work without a launch in the trace that starts before all work with a launch on its stream. If no work of
-- the stream has a launch, it must start before all work with a launch on its device. If the device has no work with a
-- launch, earlier work is unknown and there are no rows.
-- check: unique(trace_id, event_id)
WITH streams AS (
    SELECT
        trace_id, device, stream, min(CASE WHEN launch_event_id IS NOT NULL THEN start_ns END) AS first_ns
    FROM kernels
    GROUP BY trace_id, device, stream
),
devices AS (
    SELECT trace_id, device, min(first_ns) AS first_ns FROM streams GROUP BY trace_id, device
)
SELECT
    k.trace_id,  -- The trace.
    k.event_id,  -- The GPU activity, in kernels.
    k.device,  -- Its device.
    k.start_ns,  -- Start, ns.
    k.end_ns,  -- End, ns.
    k.duration_ns  -- Duration, ns.
FROM kernels AS k
JOIN streams AS s
    ON s.trace_id = k.trace_id AND s.device IS NOT DISTINCT FROM k.device AND s.stream IS NOT DISTINCT FROM k.stream
JOIN devices AS d ON d.trace_id = k.trace_id AND d.device IS NOT DISTINCT FROM k.device
WHERE k.launch_event_id IS NULL AND k.start_ns < coalesce(s.first_ns, d.first_ns)
