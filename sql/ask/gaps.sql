-- Topic: GPU time
-- Question: Where is the GPU idle the longest, and what did the host do meanwhile?
-- Reading: One row per gap between two pieces of GPU work, longest first. `reason` is what took most of it: `blocked`
-- (the host waited for the GPU), `operator`, `host` (neither: Python, loading data), `launch` (the work was launched
-- but had not begun), `unknown` (its launch is not in the trace). The host is the thread that launched the work which
-- ended the gap.
SELECT
    t.job, t.rank, g.device, round(g.duration_ns / 1e3, 1) AS gap_us, g.reason, g.host_call, g.blocking_call,
    g.launch_name, g.ended_by, g.module, g.annotation, g.start_ns, g.trace_id
FROM idle_gaps AS g
JOIN traces AS t ON g.trace_id = t.trace_id
ORDER BY g.duration_ns DESC, g.trace_id, g.device, g.start_ns
