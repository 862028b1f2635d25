-- One row: a cause of a window's length. The durations of a window's rows add up to that length.
-- How: classify the edges of the critical path by their type, the names around them and the rules in cause_rules, and
-- retime the graph without each cause. Only windows with a covering path (profile default) have rows.
-- check: unique(trace_id, window_id, cause, name)
SELECT
    n.trace_id,  -- The trace.
    n.window_id,  -- The window: full, or a step.
    n.cause,  -- The cause, in cause_kinds: data_loading, host_operators, gpu_computing, …
    n.name,  -- The operator, kernel, call, annotation, Python function, thread or stream.
    n.duration_ns,  -- Time of the cause and name on the path, ns.
    -- Share of the window, percent; the rows of a window sum to 100.
    n.share_percent,
    n.idle_ns AS gpu_idle_ns,  -- Part of duration_ns without GPU work, ns; idle_causes has the times.
    -- Part of duration_ns not overlapped with a computing kernel, ns.
    n.exposed_ns,
    -- Time by which removing this row's time shortens the window, ns, from retiming; NULL if not computed (small
    -- shares).
    n.saves_ns,
    -- Time by which halving this row's time shortens the window, ns; NULL if not computed or if halving has no meaning.
    n.halved_saves_ns,
    -- Time by which removing all rows of the cause shortens the window, ns; NULL if not computed (small sums of
    -- shares).
    n.cause_saves_ns,
    n.times,  -- Number of events with time in this row.
    n.event_id,  -- The event with the most time in this row.
    -- TRUE if at least half of the time follows waits that no event records.
    2 * n.inferred_ns >= n.duration_ns AS inferred
FROM _named_causes AS n
WHERE NOT n.without_profiler
