-- Question: Which lines of code allocate GPU memory in step after step and keep it?
-- Reading: Allocations of a memory snapshot's history that are still in use in the snapshot, by the innermost frame
-- outside PyTorch. Many steps indicate a leak, or a cache that fills. `n_steps` is NULL if the steps are unknown, or if
-- they overlap.
-- Words: leak, OOM, out of memory
WITH kept AS (
    SELECT snapshot_id, allocation_id, device, size_bytes, alloc_ns, stack_id
    FROM snapshot_allocations
    WHERE state = 'live'
),
-- A number that a second profiler repeats is one long step, which overlaps with others.
stepped AS (
    SELECT a.snapshot_id, a.allocation_id, min(s.step) AS step
    FROM kept AS a
    JOIN snapshot_steps AS s
        ON s.snapshot_id = a.snapshot_id AND s.device = a.device AND a.alloc_ns >= s.start_ns AND a.alloc_ns < s.end_ns
    GROUP BY a.snapshot_id, a.allocation_id
    HAVING min(s.step) = max(s.step)
)
SELECT
    m.job, m.rank, m.file, a.device, k.user_frame AS frame, nullif(count(DISTINCT s.step), 0) AS n_steps,
    count(*) AS n_allocations, round(sum(a.size_bytes) / 1e6, 2) AS size_mb
FROM kept AS a
JOIN memory_snapshots AS m ON m.snapshot_id = a.snapshot_id
LEFT JOIN snapshot_stacks AS k ON k.snapshot_id = a.snapshot_id AND k.stack_id = a.stack_id
LEFT JOIN stepped AS s ON s.snapshot_id = a.snapshot_id AND s.allocation_id = a.allocation_id
GROUP BY m.snapshot_id, m.job, m.rank, m.file, a.device, k.user_frame
ORDER BY count(DISTINCT s.step) DESC, sum(a.size_bytes) DESC, m.job, m.rank, m.file, a.device, k.user_frame
