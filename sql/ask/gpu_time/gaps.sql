-- Question: Where is the GPU idle the longest, and what does it wait for?
-- Reading: One row per gap between two GPU activities, longest first. `cause` and `name` own the most of it,
-- `owned_us`, as in `why`, by the critical path (table `idle_causes` has all owners). `event` is what shows it:
-- for `earlier_work`, which the trace does not hold, the call or the work that waits for it; the GPU need not have been
-- idle then. `inferred`: no event of the trace says so, calls and times do.
-- Words: idle, bubble, launch bound, data loader, data loading
SELECT
    coalesce(t.job, t.file) AS job, t.rank, round(g.duration_ns / 1e3, 1) AS gap_us, g.cause, g.name,
    round(g.owned_ns / 1e3, 1) AS owned_us, g.inferred, g.event_name AS event, g.ended_by, g.trace_id
FROM idle_gaps AS g
JOIN traces AS t ON g.trace_id = t.trace_id
ORDER BY g.duration_ns DESC, g.trace_id, g.device, g.start_ns
