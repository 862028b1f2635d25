-- Question: Where is the GPU idle the longest, and what does it wait for?
-- Reading: One row per gap between two GPU activities, longest first. `cause` and `name` own its largest part,
-- `owned_us`, by the critical path, as in `why` (table `idle_causes` lists all owners). `event` is the evidence. For
-- `earlier_work`, which the trace does not contain, `event` is the call or the GPU work that waits for it, and the GPU
-- may not have been idle. `inferred`: the cause follows from calls and times, not from an event.
-- Words: idle, bubble, launch bound, data loader, data loading
SELECT
    coalesce(t.job, t.file) AS job, t.rank, g.device, round(g.duration_ns / 1e3, 1) AS gap_us, g.cause, g.name,
    round(g.owned_ns / 1e3, 1) AS owned_us, g.inferred, g.event_name AS event, g.ended_by, g.trace_id
FROM idle_gaps AS g
JOIN traces AS t ON g.trace_id = t.trace_id
ORDER BY g.duration_ns DESC, g.trace_id, g.device, g.start_ns
