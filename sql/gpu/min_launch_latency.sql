-- One row: a device of a trace, with the shortest time from the start of a launch call to the start of its GPU work.
-- How: all GPUs of a host are compared with the same host clock, so differences between them are errors of GPU clocks.
-- The value may be negative.
-- check: unique(trace_id, device)
SELECT
    k.trace_id,  -- The trace.
    k.device,  -- Device.
    count(*) AS n_kernels,  -- Number of GPU activities whose launch is in the trace.
    min(k.start_ns - l.start_ns) AS floor_ns  -- Shortest time from launch to start, ns.
FROM kernels AS k
JOIN events AS l ON l.trace_id = k.trace_id AND l.event_id = k.launch_event_id
GROUP BY k.trace_id, k.device
