-- One row: a profile requested for a trace, with its switches as columns.
-- How: pivot rules/switches.csv by conditional aggregation; switch_overrides wins.
WITH asked AS (
    SELECT DISTINCT trace_id, profile FROM window_requests
),
chosen AS (
    SELECT s.profile, s.switch, coalesce(o.value, s.value) AS value
    FROM switches AS s
    LEFT JOIN switch_overrides AS o ON o.profile = s.profile AND o.switch = s.switch
)
SELECT
    a.trace_id,  -- The trace.
    a.profile,  -- hta or default.
    -- Number of the trace as this profile sees it; private models join on it.
    row_number() OVER (ORDER BY a.trace_id, a.profile) AS trace_profile_id,
    -- The last ProfilerStep and the work that it launched are excluded.
    bool_or(c.switch = 'drop_last_step' AND c.value = 'true') AS drop_last_step,
    -- CPU events with zero duration take part.
    bool_or(c.switch = 'keep_zero_duration' AND c.value = 'true') AS keep_zero_duration,
    -- A stream is (device, stream), not its number alone.
    bool_or(c.switch = 'stream_by_device' AND c.value = 'true') AS stream_by_device,
    -- Every event with a stream argument is GPU work, regardless of its category.
    bool_or(c.switch = 'side_by_stream_argument' AND c.value = 'true') AS side_by_stream_argument,
    -- A launch is linked to its last kernel only.
    bool_or(c.switch = 'one_kernel_per_launch' AND c.value = 'true') AS one_kernel_per_launch,
    -- A launch delay needs a queue length of 1 at the launch and 0 at the start.
    bool_or(c.switch = 'launch_delay_needs_queue' AND c.value = 'true') AS launch_delay_needs_queue,
    -- Launches that no work waited for get an edge of weight 0.
    bool_or(c.switch = 'zero_weight_launch' AND c.value = 'true') AS zero_weight_launch,
    -- Longest gap between kernels that still gets an edge (exclusive), ns.
    max(CASE WHEN c.switch = 'kernel_gap_limit_ns' THEN CAST(c.value AS BIGINT) END) AS kernel_gap_limit_ns,
    -- Only the last wait of a kernel counts.
    bool_or(c.switch = 'one_wait_per_kernel' AND c.value = 'true') AS one_wait_per_kernel,
    -- Calls that overlap under the runtime lock keep their duration.
    bool_or(c.switch = 'keep_overlapped_call_time' AND c.value = 'true') AS keep_overlapped_call_time,
    -- The end of an operator closes the event on top of the stack.
    bool_or(c.switch = 'exit_pops_top' AND c.value = 'true') AS exit_pops_top,
    -- A blocking call weighs 0 even when nothing explains its wait.
    bool_or(c.switch = 'blocking_is_free' AND c.value = 'always') AS blocking_is_always_free,
    -- Weights at or below this count as 0 on the path, ns.
    max(CASE WHEN c.switch = 'negative_weight_is_zero_from_ns' THEN CAST(c.value AS BIGINT) END) AS zero_from_ns,
    -- Instances of an annotation are counted on the CPU only.
    bool_or(c.switch = 'instances_on_cpu' AND c.value = 'true') AS instances_on_cpu,
    -- Work that overlaps the work before it on its stream follows that work's start, not its end.
    bool_or(c.switch = 'overlap_counts_once' AND c.value = 'true') AS overlap_counts_once,
    -- The summary adds measured weights, negative ones too.
    bool_or(c.switch = 'summary_weight' AND c.value = 'measured') AS summary_of_measured,
    -- Operators of a thread follow their data (docs/data-dependencies.md) instead of each other.
    bool_or(c.switch = 'dependencies' AND c.value = 'data') AS data_dependencies,
    -- Earlier work on a stream comes from the whole trace, not from the window alone.
    bool_or(c.switch = 'whole_trace_history' AND c.value = 'true') AS whole_trace_history,
    -- In traces without cuda_sync rows, waits are inferred from calls and timing.
    bool_or(c.switch = 'infer_waits' AND c.value = 'without_sync_events') AS infer_waits,
    -- The thread of the profiler steps also counts as the forward thread, and a forward thread is never a backward
    -- thread.
    bool_or(c.switch = 'forward_thread' AND c.value = 'by_name_or_step') AS steps_name_forward_thread,
    -- The path covers the window: every node has a binding edge that claims all the time since the edge's source. FALSE
    -- if operators follow their data, because the bound of an operator without data edges is unknown.
    bool_or(c.switch = 'covers_window' AND c.value = 'true')
    AND NOT bool_or(c.switch = 'dependencies' AND c.value = 'data') AS covers_window
FROM asked AS a
JOIN chosen AS c ON c.profile = a.profile
GROUP BY a.trace_id, a.profile
