-- Question: What do operators and modules hold at the peak of a memory snapshot?
-- Reading: One row per snapshot, device and owner, for snapshots that belong to a trace.
SELECT x.*
FROM snapshot_peak_owners AS x
JOIN snapshot_trace_matches AS m ON x.snapshot_id = m.snapshot_id
JOIN traces AS t ON m.trace_id = t.trace_id
ORDER BY x.size_bytes DESC, x.op, x.module, x.module_frame, x.source
