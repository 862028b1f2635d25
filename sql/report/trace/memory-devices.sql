-- Question: How much memory do the devices of each rank use at their peak?
-- Reading: One row per trace and device, GPUs first.
SELECT t.rank, x.*
FROM memory_peaks AS x
JOIN traces AS t ON x.trace_id = t.trace_id
ORDER BY x.device_type = 0, coalesce(x.peak_allocated_bytes, x.peak_relative_bytes) DESC, t.rank, t.path, x.device
