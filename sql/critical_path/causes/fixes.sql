-- One row: a change to the program that would shorten a window, and by how much.
-- How: the changes in fix_kinds that apply to the causes of the window's time, each retimed as a what-if scenario.
-- `tracelake what-if TRACE` with `options` prints the same number. Several fixes of a window may save the same time, so
-- their savings do not add up. Two fixes of a kind that are nested in each other (threshold nested_percent) share one
-- row. It is the row of the fix that removes more time if that fix saves more (threshold fix_percent), else of the
-- other fix. A fix whose saving cannot be computed has no row. A window with more edges than threshold retimed_edges
-- has no rows.
-- check: unique(trace_id, window_id, fix, name)
WITH changes AS (
    SELECT
        f.window_no, f.place,
        replace(
            k.change, '{name}', CASE f.name WHEN '*' THEN 'any call' WHEN '' THEN 'what has no name' ELSE f.name END
        ) AS change
    FROM _fix_rows AS f
    JOIN fix_kinds AS k ON k.fix = f.fix
)
SELECT
    w.trace_id,  -- The trace.
    w.window_id,  -- The window: full, or a step.
    f.fix,  -- Kind of fix, in fix_kinds: do_not_wait, load_ahead, copy_ahead, …
    -- The operator, call, kernel or function to change (empty if it has no name); * for all waits, empty for the whole
    -- window.
    f.name,
    t.change,  -- The change to make.
    f.saves_ns,  -- Time by which the fix shortens the window, ns.
    -- saves_ns in percent of the window.
    100e0 * f.saves_ns
    / nullif(CASE WHEN f.without_profiler THEN r.without_profiler_ns ELSE w.path_end_ns - w.path_start_ns END, 0)
        AS saves_percent,
    -- The numbers are for the window without the profiler's cost, which is the case if `why` ranks its causes without
    -- it.
    f.without_profiler,
    f.options,  -- Options of what-if that produce this number.
    -- Change of a larger fix, or title of a host cause, to which this fix is an alternative: it saves mostly the same
    -- time, or the savings would add up to more than the window. NULL if there is none. Savings with NULL add up to at
    -- most the window. Only the five largest fixes are compared for the same time.
    coalesce(s.change, c.title) AS same_stretch_as,
    k.is_bound,  -- saves_ns is an upper bound, not an expected value.
    -- Limitations of the number; NULL if there is none.
    nullif(concat_ws('; ', nullif(k.caveat, ''), f.caveat), '') AS caveat
FROM _fix_rows AS f
JOIN critical_path_windows AS w ON w.window_no = f.window_no
JOIN fix_kinds AS k ON k.fix = f.fix
JOIN changes AS t ON t.window_no = f.window_no AND t.place = f.place
LEFT JOIN changes AS s ON s.window_no = f.window_no AND s.place = f.same_place
LEFT JOIN cause_kinds AS c ON c.cause = f.same_cause
LEFT JOIN _recording_costs AS r ON r.window_no = f.window_no
