-- One row: a change that would make a window shorter, and by how much: what to change in the program, not where its
-- time goes.
-- How: the changes in fix_kinds that apply to what the window's time is spent on, each retimed as a scenario of
-- what-if; `tracelake what-if TRACE` with `options` gives the same number. Fixes of one window may be ways out of the
-- same stretch: their savings do not add up. A fix that cannot be judged has no row, nor has a window of more edges
-- than threshold retimed_edges.
-- check: unique(trace_id, window_id, fix, name)
WITH changes AS (
    SELECT
        f.window_no, f.place,
        replace(k.change, '{name}', CASE WHEN f.name = '*' THEN 'any call' ELSE f.name END) AS change
    FROM _fix_rows AS f
    JOIN fix_kinds AS k ON k.fix = f.fix
)
SELECT
    w.trace_id,  -- The trace.
    w.window_id,  -- The window: full, or a step.
    f.fix,  -- The kind, in fix_kinds: do_not_wait, load_ahead, copy_ahead, …
    f.name,  -- The operator, call, kernel or function that it is done to; * for all waits, empty for the whole window.
    t.change,  -- What to do.
    f.saves_ns,  -- What the window is shorter with it, ns.
    -- The same in percent of the window.
    100e0 * f.saves_ns
    / nullif(CASE WHEN f.without_profiler THEN r.without_profiler_ns ELSE w.path_end_ns - w.path_start_ns END, 0)
        AS saves_percent,
    f.without_profiler,  -- Of the window without the profiler's cost, where why ranks its causes without it, too.
    f.options,  -- The options of what-if that give this number.
    -- The larger fix (what to do), or the cause of the host's (its title), that is the same stretch of time: only one
    -- of the two can be saved. NULL where there is none, or it was not compared: the five largest are.
    coalesce(s.change, c.title) AS same_stretch_as,
    k.is_bound,  -- The most that the change can give, not what is expected of it.
    nullif(k.caveat, '') AS caveat  -- What limits the number; NULL for nothing.
FROM _fix_rows AS f
JOIN critical_path_windows AS w ON w.window_no = f.window_no
JOIN fix_kinds AS k ON k.fix = f.fix
JOIN changes AS t ON t.window_no = f.window_no AND t.place = f.place
LEFT JOIN changes AS s ON s.window_no = f.window_no AND s.place = f.same_place
LEFT JOIN cause_kinds AS c ON c.cause = f.same_cause
LEFT JOIN _recording_costs AS r ON r.window_no = f.window_no
