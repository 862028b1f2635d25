-- One row: a cause of a window's length. The durations of a window's rows add up to that length.
-- How: the time of the critical path by what it was spent on (the kind of each edge, the names around it, rules in
-- cause_rules), and the graph retimed without it. Windows with a covering path (profile default).
-- check: unique(trace_id, window_id, cause, name)
SELECT
    n.trace_id,  -- The trace.
    n.window_id,  -- The window: full, or a step.
    n.cause,  -- The cause, in cause_kinds: data_loading, host_operators, gpu_computing, …
    n.name,  -- The operator, kernel, call, annotation, Python function, thread or stream.
    n.duration_ns,  -- Its time on the path, ns.
    -- The same in percent of the window; the rows of a window sum to 100.
    n.share_percent,
    n.idle_ns AS gpu_idle_ns,  -- The part of it in which no GPU work ran, ns; idle_causes has when.
    -- The part of it in which no kernel ran that computes, ns: what communication and copies have for themselves.
    n.exposed_ns,
    -- What the window is shorter without it, ns: retimed; NULL where it was not computed (small shares).
    n.saves_ns,
    n.halved_saves_ns,  -- The same with half of it; NULL where it was not computed, or there is no half.
    n.cause_saves_ns,  -- What the window is shorter without all rows of the cause, ns.
    n.times,  -- Events with such time.
    n.event_id,  -- The one with the most of it.
    2 * n.inferred_ns >= n.duration_ns AS inferred  -- It follows mostly from waits that no event shows.
FROM _named_causes AS n
WHERE NOT n.without_profiler
