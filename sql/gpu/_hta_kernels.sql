-- One row: an event that HTA counts as GPU work because it has a stream argument (including waits and host operators of
-- Triton), in the columns of `kernels`.
-- How: the events that profile hta loads, with its classes. HTA treats all devices as one. If HTA drops the last
-- profiler step, it keeps the GPU rows whose call it keeps (HTA 2.5, 2.9).
SELECT
    p.trace_id,  -- The trace.
    l.event_id,  -- Position in traceEvents.
    e.name,  -- Name.
    c.class,  -- Class in HTA 0.6.1.
    c.rule_id,  -- Rule in kernel_classes that decided the class.
    -- The lowest device of the trace: HTA treats all devices as one.
    min(l.device) OVER (PARTITION BY p.trace_id) AS device,
    e.stream,  -- Stream.
    l.start_ns,  -- Start, ns.
    l.start_ns + l.duration_ns AS end_ns,  -- End, ns.
    l.duration_ns,  -- Duration, ns.
    k.launch_event_id,  -- The CPU call that launched it; NULL if the call is not in the trace.
    -- Node of the CUDA or HIP graph; NULL outside graphs, where writers on CUDA 12 and later put 0.
    CASE WHEN e.graph_node <> 0 OR e.graph_id <> 0 THEN e.graph_node END AS graph_node,
    e.correlation,  -- Correlation id.
    e.cat,  -- Category.
    e.bytes,  -- Bytes copied or set; NULL for kernels.
    c.class AS hta_class,  -- Class in HTA 0.6.1.
    c.rule_id AS hta_rule_id  -- Rule in kernel_classes that decided hta_class.
FROM _loaded_events AS l
JOIN _profiles AS p ON p.trace_profile_id = l.trace_profile_id AND p.profile = 'hta'
JOIN events AS e ON e.trace_id = p.trace_id AND e.event_id = l.event_id
JOIN _kernel_class AS c ON c.profile = 'hta' AND c.cat = e.cat AND c.name = e.name
LEFT JOIN _links AS k ON k.trace_profile_id = l.trace_profile_id AND k.gpu_event_id = l.event_id
LEFT JOIN _loaded_events AS call ON call.trace_profile_id = k.trace_profile_id AND call.event_id = k.launch_event_id
WHERE coalesce(e.stream, -1) <> -1 AND (NOT l.sorts_first OR call.event_id IS NOT NULL)
