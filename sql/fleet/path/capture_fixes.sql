-- One row: a change that would make a capture shorter, and by how much: of the program on all ranks, or of one rank
-- that the others wait for.
-- How: the changes in fix_kinds that apply to what the path through the ranks (capture_critical_path) spends on one of
-- them, each retimed as a scenario of what-if on all of them; `tracelake what-if FOLDER` with `options` gives the same
-- number. even_ranks: a rank takes as long as the median of the others at what makes it late. Fixes may be ways out of
-- the same stretch: their savings do not add up. A fix that cannot be judged has no row, nor has a capture of more
-- edges than threshold retimed_edges.
-- scope: capture
-- check: unique(capture_id, fix, name)
WITH changes AS (
    SELECT
        f.capture_id, f.place,
        replace(k.change, '{name}', CASE WHEN f.name = '*' THEN 'any call' ELSE f.name END) AS change
    FROM _capture_fix_rows AS f
    JOIN fix_kinds AS k ON k.fix = f.fix
)
SELECT
    f.capture_id,  -- The capture.
    f.fix,  -- The kind, in fix_kinds: even_ranks, do_not_wait, move_host_work, …
    -- The operator, call, kernel, function or rank that it is done to; * for all waits, empty for the whole program.
    f.name,
    t.change,  -- What to do.
    f.saves_ns,  -- What the capture is shorter with it, ns.
    100e0 * f.saves_ns / nullif(f.length_ns, 0) AS saves_percent,  -- The same in percent of the capture.
    f.options,  -- The options of what-if that give this number.
    -- The larger fix (what to do), or the cause of the host's (its title), that is the same stretch of time: only one
    -- of the two can be saved. NULL where there is none, or it was not compared: the five largest are.
    coalesce(s.change, c.title) AS same_stretch_as,
    k.is_bound,  -- The most that the change can give, not what is expected of it.
    nullif(k.caveat, '') AS caveat  -- What limits the number; NULL for nothing.
FROM _capture_fix_rows AS f
JOIN fix_kinds AS k ON k.fix = f.fix
JOIN changes AS t ON t.capture_id = f.capture_id AND t.place = f.place
LEFT JOIN changes AS s ON s.capture_id = f.capture_id AND s.place = f.same_place
LEFT JOIN cause_kinds AS c ON c.cause = f.same_cause
