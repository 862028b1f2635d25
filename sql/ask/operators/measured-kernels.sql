-- Question: What did hardware counters measure of the kernels that take most time?
-- Reading: For traces whose kernels are in ingested files of counters (`rocprofv3 --pmc`, `ncu --csv`) from another
-- run. `matched_by`: order (the n-th launch matches the n-th), shape (mean of the same name, grid and block) or name
-- (the trace records no grid). NULL: not measured.
-- Words: hardware counters, occupancy, cache, bandwidth
SELECT
    coalesce(t.job, t.file) AS job, t.rank, k.device, k.name, k.grid, k.block, k.n_kernels AS n,
    round(k.duration_ns / 1e6, 3) AS gpu_ms, k.n_measured, k.matched_by,
    round(k.occupancy_percent, 1) AS occupancy_percent, round(k.l2_hit_percent, 1) AS l2_hit_percent,
    round(k.tensor_percent, 1) AS tensor_percent, round(k.bytes_read / 1e6, 3) AS read_mb,
    round(k.bytes_written / 1e6, 3) AS written_mb, round(k.read_gigabytes_per_s, 1) AS read_gb_per_s,
    round(k.bandwidth_percent, 1) AS bandwidth_percent
FROM kernels_measured AS k
JOIN traces AS t ON t.trace_id = k.trace_id
WHERE k.n_measured > 0
ORDER BY k.duration_ns DESC, job, t.rank, k.name, k.grid, k.block, k.device, t.trace_id
