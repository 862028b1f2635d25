-- Question: What did hardware counters measure of the kernels?
-- Reading: One row per device, kernel, grid and block, most time first.
SELECT x.*
FROM kernels_measured AS x
JOIN traces AS t ON x.trace_id = t.trace_id
WHERE x.n_measured > 0
ORDER BY x.duration_ns DESC, x.name, x.grid, x.block, x.device
