-- One row: a profiler step of a trace, or the whole trace, as `tracelake compare` needs it, with GPU time by class.
-- How: `retention --keep digest` keeps this table when it drops the events. The GPU columns describe the busiest
-- device.
-- scope: trace
-- check: unique(trace_id, step)
WITH classes AS (
    SELECT trace_id, step, busy_ns, compute_ns, communication_ns FROM step_times
    UNION ALL
    SELECT trace_id, NULL, busy_ns, compute_ns, communication_ns FROM temporal_breakdown
),
placed AS (
    SELECT
        trace_id, step, compute_ns, communication_ns,
        row_number() OVER (
            PARTITION BY trace_id, step ORDER BY busy_ns DESC NULLS LAST, compute_ns DESC, communication_ns DESC
        ) AS place
    FROM classes
)
SELECT
    w.trace_id,  -- The trace.
    w.step,  -- Number of the profiler step; NULL for the whole trace.
    w.start_ns,  -- Start of the window, ns.
    w.end_ns,  -- End of the window, ns.
    w.duration_ns,  -- Length of the window, ns.
    w.host_start_ns,  -- Start of the host time that belongs to the window, ns.
    w.host_end_ns,  -- End of that host time, ns.
    w.host_ns,  -- Duration of the step's annotation on the host, ns; NULL for the whole trace.
    w.warm_up_times,  -- Length of a first step relative to the steps after it, as in step_lengths; else NULL.
    w.busy_ns,  -- Time with GPU work, ns; NULL, like the next three columns, where the trace has no GPU work.
    w.idle_ns,  -- Time without GPU work, ns.
    b.compute_ns,  -- Time with computing kernels, ns.
    b.communication_ns,  -- Time with communication kernels, ns.
    -- GPU time in the window of work that was launched before the window, or whose launch is not in the trace, ns.
    w.earlier_ns
FROM _compared_windows AS w
LEFT JOIN placed AS b ON b.trace_id = w.trace_id AND b.step IS NOT DISTINCT FROM w.step AND b.place = 1
