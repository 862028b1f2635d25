-- One row: a cause of a window's length. The durations of a window's rows add up to that length.
-- How: classify the edges of the critical path by their type, the names around them and the rules in cause_rules, and
-- retime the graph without each cause. Windows with a covering path (profile default).
-- check: unique(trace_id, window_id, cause, name)
SELECT
    n.trace_id,  -- The trace.
    n.window_id,  -- The window: full, or a step.
    n.cause,  -- The cause, in cause_kinds: data_loading, host_operators, gpu_computing, …
    n.name,  -- The operator, kernel, call, annotation, Python function, thread or stream.
    n.duration_ns,  -- Its time on the path, ns.
    -- Share of the window, percent; the rows of a window sum to 100.
    n.share_percent,
    n.idle_ns AS gpu_idle_ns,  -- Part of it without GPU work, ns; idle_causes has the times.
    -- Part of it without a computing kernel, ns: not overlapped with compute.
    n.exposed_ns,
    -- By how much removing it shortens the window, ns, from retiming; NULL if not computed (small shares).
    n.saves_ns,
    -- By how much halving it shortens the window, ns; NULL if not computed or if halving has no meaning.
    n.halved_saves_ns,
    -- By how much removing all rows of the cause shortens the window, ns; NULL if not computed (small sums of shares).
    n.cause_saves_ns,
    n.times,  -- Number of events with such time.
    n.event_id,  -- The event with the most of it.
    2 * n.inferred_ns >= n.duration_ns AS inferred  -- At least half of the time follows waits that no event records.
FROM _named_causes AS n
WHERE NOT n.without_profiler
