-- One row: a change that would make a window shorter, and by how much: what to change in the program, not where its
-- time goes.
-- How: the changes in fix_kinds that apply to what the window's time is spent on, each retimed as a scenario of
-- what-if; `tracelake what-if TRACE` with `options` gives the same number. Fixes of one window may be ways out of the
-- same stretch: their savings do not add up. A fix that cannot be judged has no row.
-- check: unique(trace_id, window_id, fix, name)
WITH totals AS (
    SELECT window_no, sum(duration_ns) AS duration_ns
    FROM _cause_rows
    WHERE NOT without_profiler
    GROUP BY window_no
)
SELECT
    w.trace_id,  -- The trace.
    w.window_id,  -- The window: full, or a step.
    f.fix,  -- The kind, in fix_kinds: do_not_wait, load_ahead, copy_ahead, …
    f.name,  -- The operator, call, kernel or function that it is done to; * for all waits, empty for the whole window.
    replace(k.change, '{name}', CASE WHEN f.name = '*' THEN 'any call' ELSE f.name END) AS change,  -- What to do.
    f.saves_ns,  -- What the window is shorter with it, ns.
    100e0 * f.saves_ns / nullif(t.duration_ns, 0) AS saves_percent,  -- The same in percent of the window.
    f.options,  -- The options of what-if that give this number.
    nullif(k.caveat, '') AS caveat  -- What the number leaves out; NULL for nothing.
FROM _fix_rows AS f
JOIN critical_path_windows AS w ON w.window_no = f.window_no
JOIN totals AS t ON t.window_no = f.window_no
JOIN fix_kinds AS k ON k.fix = f.fix
