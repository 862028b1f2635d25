-- One row: a CPU call that launched GPU work.
-- How: group the links of the default profile by call.
-- check: unique(trace_id, event_id)
SELECT
    k.trace_id,  -- The trace.
    k.launch_event_id AS event_id,  -- The call's position in traceEvents.
    e.name,  -- Name of the call.
    e.pid,  -- Its process.
    e.tid,  -- Its thread.
    e.start_ns,  -- Its start, ns.
    e.duration_ns,  -- Its duration, ns.
    count(*) AS n_kernels,  -- Number of GPU activities that the call launched; more than one for a graph.
    min(k.start_ns) AS first_kernel_ts_ns,  -- Start of the first GPU activity, ns.
    TRY_CAST(sum(k.duration_ns) AS BIGINT) AS kernel_duration_ns,  -- Summed duration of these activities, ns.
    -- Time from the end of the call to the first start, ns; negative if the GPU started before the call returned.
    min(k.start_ns) - e.end_ns AS launch_delay_ns
FROM kernels AS k
JOIN events AS e ON e.trace_id = k.trace_id AND e.event_id = k.launch_event_id
WHERE k.launch_event_id IS NOT NULL
GROUP BY k.trace_id, k.launch_event_id, e.name, e.pid, e.tid, e.start_ns, e.duration_ns, e.end_ns
