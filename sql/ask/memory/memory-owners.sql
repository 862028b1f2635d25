-- Question: Which operators hold the most memory at the peak?
-- Reading: Blocks alive at the peak of their device in a trace, summed by the innermost span or operator that allocated
-- them.
-- Words: OOM, out of memory
SELECT
    coalesce(t.job, t.file) AS job, t.rank,
    b.device, b.owner, count(*) AS n_blocks, round(sum(b.size_bytes) / 1e6, 2) AS size_mb,
    t.trace_id
FROM memory_blocks AS b
JOIN memory_peaks AS m
    ON b.trace_id = m.trace_id AND b.device_type IS NOT DISTINCT FROM m.device_type
        AND b.device IS NOT DISTINCT FROM m.device
JOIN traces AS t ON b.trace_id = t.trace_id
WHERE
    b.state <> 'release_missing' AND (b.alloc_seq IS NULL OR b.alloc_seq <= m.peak_seq)
    AND (b.free_seq IS NULL OR b.free_seq > m.peak_seq)
GROUP BY t.trace_id, coalesce(t.job, t.file), t.rank, b.device, b.owner
ORDER BY sum(b.size_bytes) DESC, job, t.rank, b.device, b.owner, t.trace_id
