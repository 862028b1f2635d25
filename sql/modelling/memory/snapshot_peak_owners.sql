-- One row: an operator, a module and the module's code, with the memory that they allocated and that was in use at the
-- peak of a device of a memory snapshot. Without a history, the time of the snapshot counts. The rows of a device add
-- up to its peak.
-- scope: lake
WITH alive AS (
    SELECT
        o.snapshot_id, o.device, o.op, o.module, o.module_frame, o.source, o.confidence, o.size_bytes, o.step,
        coalesce(p.peak_allocated_bytes, p.allocated_bytes) AS peak_bytes
    FROM snapshot_owners AS o
    JOIN snapshot_allocations AS a ON a.snapshot_id = o.snapshot_id AND a.allocation_id = o.allocation_id
    JOIN snapshot_peaks AS p ON p.snapshot_id = a.snapshot_id AND p.device = a.device
    WHERE coalesce(a.alloc_seq, -1) <= coalesce(p.peak_seq, -1)
        AND (a.free_seq IS NULL OR a.free_seq > coalesce(p.peak_seq, -1))
        AND a.state <> 'release_missing'
)
SELECT
    snapshot_id,  -- The snapshot.
    device,  -- Device number.
    op,  -- Operator that allocated, as in snapshot_owners; NULL where it is unknown.
    module,  -- Module of the trace, as in snapshot_owners; NULL where it is unknown.
    module_frame,  -- Innermost `forward` of the stack: `file:line function`; NULL without one.
    source,  -- memory_event or clock, as in snapshot_owners; NULL where operator and module are unknown.
    max(confidence) AS confidence,  -- As in snapshot_owners; NULL as source.
    min(step) AS first_step,  -- First step with one of these allocations; NULL where no step is known.
    max(step) AS last_step,  -- Last such step; NULL where no step is known.
    count(*) AS n_allocations,  -- Allocations in use.
    TRY_CAST(sum(size_bytes) AS BIGINT) AS size_bytes,  -- Requested bytes of these allocations.
    -- Share of all memory in use then, percent.
    100.0 * sum(size_bytes) / nullif(max(peak_bytes), 0) AS size_percent
FROM alive
GROUP BY snapshot_id, device, op, module, module_frame, source
