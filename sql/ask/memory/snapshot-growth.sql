-- Question: Does GPU memory grow from step to step?
-- Reading: From CUDA memory snapshots: memory in use at the end of a step, and its growth since the end of the step
-- before. Growth that continues after the first steps is a leak. `tracelake ask snapshot-leaks` shows its lines of
-- code. NULL: the history does not reach that step.
-- Words: leak, OOM, out of memory
SELECT
    m.job, m.rank, m.file, s.device, s.step, round(s.allocated_bytes / 1e6, 2) AS allocated_mb,
    round(s.growth_bytes / 1e6, 2) AS growth_mb, s.source AS steps_from
FROM snapshot_steps AS s
JOIN memory_snapshots AS m ON m.snapshot_id = s.snapshot_id
ORDER BY m.job, m.rank, m.file, s.device, s.step, m.snapshot_id
