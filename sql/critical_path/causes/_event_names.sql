-- One row: a distinct category and name of a trace's events with a duration, with the start of the first such event.
-- How: group events by category and name. The class of GPU work is its class in profile default.
-- check: unique(trace_id, cat, name)
-- check: unique(name_no)
WITH named AS (
    SELECT
        trace_id, cat, coalesce(name, '') AS name, min(name) AS written_name, count(*) AS n_events,
        min(start_ns) AS first_start_ns, sum(duration_ns) AS duration_ns
    FROM events
    WHERE duration_ns IS NOT NULL AND start_ns IS NOT NULL
    GROUP BY trace_id, cat, coalesce(name, '')
)
SELECT
    n.trace_id,  -- The trace.
    n.cat,  -- Category.
    n.name,  -- The name; empty if the events have none.
    row_number() OVER (ORDER BY n.trace_id, n.cat, n.name) AS name_no,  -- Its number, from 1.
    -- frame, annotation, operator, call, kernel, communication, copy, fill or wait (GPU work that does not compute:
    -- event waits and other stages of MTIA jobs); NULL for others.
    CASE
        WHEN k.class = 'COMMUNICATION' THEN 'communication'
        WHEN n.cat = 'gpu_memset' OR k.class = 'MEMORY' AND starts_with(n.name, 'Memset') THEN 'fill'
        WHEN n.cat = 'gpu_memcpy' OR k.class = 'MEMORY' THEN 'copy'
        WHEN n.cat <> 'kernel' AND s.side = 'gpu' AND k.class = 'OTHER' THEN 'wait'
        WHEN s.side = 'gpu' OR k.class IS NOT NULL AND coalesce(s.side, 'cpu') <> 'cpu' THEN 'kernel'
        WHEN n.cat = 'python_function' THEN 'frame'
        WHEN regexp_matches(n.cat, '_(runtime|driver)$') OR n.cat = 'xpu_sync' THEN 'call'
        -- PyTorch's own annotations. PyTorch wrote them as operators until 2021 (_loaded_events).
        WHEN regexp_matches(n.name, '^(ProfilerStep|Optimizer\.step|Optimizer\.zero_grad|enumerate\(DataLoader\))#')
            THEN 'annotation'
        WHEN s.is_operator THEN 'operator'
        ELSE 'annotation'
    END AS kind,
    k.class,  -- Class of GPU work; NULL for others.
    regexp_matches(n.name, '^ProfilerStep#[0-9]+$') AS is_step,  -- The name of a profiler step.
    -- A copy from the device to the host. PTI (Intel) writes D2H to pinned, D2M to other memory.
    coalesce(n.cat = 'gpu_memcpy', FALSE) AND regexp_matches(n.name, '(?i)DtoH|D2[HM]|device.?to.?host') AS to_host,
    -- A copy of pageable memory.
    coalesce(n.cat = 'gpu_memcpy', FALSE) AND regexp_matches(n.name, '(?i)pageable') AS is_pageable,
    -- A Python function in a file that is neither PyTorch's nor Python's own.
    n.cat = 'python_function' AND first_python_frames(n.name) IS NULL AS is_own_function,
    n.n_events,  -- Number of events of that name.
    n.first_start_ns,  -- Start of the first of them, ns.
    TRY_CAST(n.duration_ns AS BIGINT) AS duration_ns  -- Summed duration of these events, ns.
FROM named AS n
LEFT JOIN category_sides AS s ON s.cat = n.cat
LEFT JOIN _kernel_class AS k ON k.profile = 'default' AND k.cat = n.cat AND k.name IS NOT DISTINCT FROM n.written_name
