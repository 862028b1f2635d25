-- One row: a GPU activity: a kernel, a copy or a memset.
-- How: GPU events with their class in the default profile and in HTA, and the call that launched them.
-- check: unique(trace_id, event_id)
SELECT
    e.trace_id,  -- The trace.
    e.event_id,  -- Position in traceEvents.
    e.name,  -- Name of the kernel or copy.
    c.class,  -- COMPUTATION, COMMUNICATION, MEMORY, OTHER or another class of class_kinds.
    c.rule_id,  -- Rule in kernel_classes that decided the class.
    coalesce(e.device, TRY_CAST(e.pid AS BIGINT), 0) AS device,  -- Device it ran on.
    e.stream,  -- Stream on the device.
    e.lane,  -- Lane on which graph work is drawn instead of its stream; NULL if it is drawn on its stream.
    e.start_ns,  -- Start, ns.
    e.end_ns,  -- End, ns.
    e.duration_ns,  -- Duration, ns.
    l.launch_event_id,  -- The CPU call that launched it; NULL if the call is not in the trace.
    -- Node of the CUDA or HIP graph; NULL outside graphs, where writers on CUDA 12 and later put 0.
    CASE WHEN e.graph_node <> 0 OR e.graph_id <> 0 THEN e.graph_node END AS graph_node,
    e.correlation,  -- Correlation id.
    e.cat,  -- kernel, gpu_memcpy or gpu_memset.
    e.bytes,  -- Bytes copied or set; NULL for kernels.
    h.class AS hta_class,  -- Class in HTA 0.6.1: COMPUTATION, COMMUNICATION, MEMORY or OTHER.
    h.rule_id AS hta_rule_id  -- Rule in kernel_classes that decided hta_class.
FROM events AS e
JOIN category_sides AS s ON s.cat = e.cat AND s.side = 'gpu'
LEFT JOIN _kernel_class AS c ON c.profile = 'default' AND c.cat = e.cat AND c.name IS NOT DISTINCT FROM e.name
LEFT JOIN _kernel_class AS h ON h.profile = 'hta' AND h.cat = e.cat AND h.name IS NOT DISTINCT FROM e.name
LEFT JOIN _profiles AS p ON p.trace_id = e.trace_id AND p.profile = 'default'
LEFT JOIN _links AS l ON l.trace_profile_id = p.trace_profile_id AND l.gpu_event_id = e.event_id
WHERE e.duration_ns IS NOT NULL AND e.start_ns IS NOT NULL
