-- Question: How fragmented is the reserved GPU memory?
-- Reading: From CUDA memory snapshots. Only its stream and pool can use free memory, and a tensor needs a single block
-- of at least its size. `releasable` is the memory that torch.cuda.empty_cache could return to the device. `stuck` is
-- free memory between blocks in use.
-- Words: OOM, out of memory
SELECT
    m.job, m.rank, m.file, f.device, f.stream, f.pool_id, count(*) AS n_segments,
    round(sum(f.total_bytes) / 1e6, 2) AS reserved_mb, round(sum(f.used_bytes) / 1e6, 2) AS used_mb,
    round(sum(f.rounding_bytes) / 1e6, 2) AS rounding_mb,
    round(sum(CASE WHEN f.is_free THEN f.free_bytes ELSE 0 END) / 1e6, 2) AS releasable_mb,
    round(sum(CASE WHEN f.is_free THEN 0 ELSE f.free_bytes END) / 1e6, 2) AS stuck_mb,
    round(max(f.largest_free_bytes) / 1e6, 2) AS largest_free_block_mb
FROM snapshot_fragmentation AS f
JOIN memory_snapshots AS m ON m.snapshot_id = f.snapshot_id
GROUP BY m.snapshot_id, m.job, m.rank, m.file, f.device, f.stream, f.pool_id
ORDER BY
    sum(CASE WHEN f.is_free THEN 0 ELSE f.free_bytes END) DESC, m.job, m.rank, m.file, f.device, f.stream, f.pool_id
