-- One row: a call that launched more than one piece of GPU work: a CUDA or HIP graph.
-- How: count the work of each launch.
SELECT
    h.trace_profile_id,  -- The trace as a profile sees it.
    h.launch_event_id,  -- The call.
    min(h.ts_ns) AS first_ns  -- Start of the first of its work, ns.
FROM _gpu_history AS h
JOIN _profiles AS p ON p.trace_profile_id = h.trace_profile_id
WHERE p.covers_window AND h.launch_event_id IS NOT NULL
GROUP BY h.trace_profile_id, h.launch_event_id
HAVING count(*) > 1
