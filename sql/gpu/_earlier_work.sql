-- One row: a GPU activity that was launched before the trace began.
-- How: no launch of it is in the trace, and nothing with a launch ran before it on its stream; on a stream where none
-- has a launch, on its device. Where no launches are recorded at all, it is unknown.
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
    k.event_id,  -- The work, in kernels.
    k.device,  -- Its device.
    k.start_ns,  -- Start, ns.
    k.end_ns,  -- End, ns.
    k.duration_ns  -- Duration, ns.
FROM kernels AS k
JOIN streams AS s
    ON s.trace_id = k.trace_id AND s.device IS NOT DISTINCT FROM k.device AND s.stream IS NOT DISTINCT FROM k.stream
JOIN devices AS d ON d.trace_id = k.trace_id AND d.device IS NOT DISTINCT FROM k.device
WHERE k.launch_event_id IS NULL AND k.start_ns < coalesce(s.first_ns, d.first_ns)
