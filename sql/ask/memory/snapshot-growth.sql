-- Question: Does GPU memory grow from step to step?
-- Reading: From CUDA memory snapshots: what is in use when a step ends, and how much more than at the end of the step
-- before. A leak is growth that does not stop after the first steps. `tracelake ask snapshot-leaks` has its lines of
-- code. NULL: the history does not reach that step.
-- Words: leak, OOM, out of memory
SELECT
    m.job, m.rank, m.file, s.device, s.step, round(s.allocated_bytes / 1e6, 2) AS allocated_mb,
    round(s.growth_bytes / 1e6, 2) AS growth_mb, s.source AS steps_from
FROM snapshot_steps AS s
JOIN memory_snapshots AS m ON m.snapshot_id = s.snapshot_id
ORDER BY m.job, m.rank, m.file, s.device, s.step, m.snapshot_id
