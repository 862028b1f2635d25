-- One row: a change that would make a capture shorter, and the time that it saves. The change applies to the program on
-- all ranks, or to one rank that the others wait for.
-- How: a change in fix_kinds is a candidate if it applies to time that the path through the ranks
-- (capture_critical_path) spends on a rank. Each candidate is retimed on all ranks as a what-if scenario. `tracelake
-- what-if FOLDER` with `options` returns the same number. With even_ranks, a rank takes as long as the median of the
-- others for the work that makes it late. Savings do not add up, because several fixes may shorten the same interval.
-- Nested fixes share one row, as in fixes. A fix whose saving cannot be computed has no row. A capture with more edges
-- than threshold retimed_edges has no rows.
-- scope: capture
-- check: unique(capture_id, fix, name)
WITH changes AS (
    SELECT
        f.capture_id, f.place,
        replace(
            k.change, '{name}', CASE f.name WHEN '*' THEN 'any call' WHEN '' THEN 'what has no name' ELSE f.name END
        ) AS change
    FROM _capture_fix_rows AS f
    JOIN fix_kinds AS k ON k.fix = f.fix
)
SELECT
    f.capture_id,  -- The capture.
    f.fix,  -- The kind, in fix_kinds: even_ranks, do_not_wait, move_host_work, …
    -- The operator, call, kernel, function or rank that the change applies to (empty if it has no name); * for all
    -- waits, empty for the whole program.
    f.name,
    t.change,  -- Description of the change.
    f.saves_ns,  -- Time by which the change makes the capture shorter, ns.
    100e0 * f.saves_ns / nullif(f.length_ns, 0) AS saves_percent,  -- saves_ns in percent of the capture's length.
    f.options,  -- Options of what-if that return this number.
    -- Change of a larger fix, or title of a host cause, to which this fix is an alternative: it saves mostly the same
    -- time, or the savings would add up to more than the capture. NULL if there is none. Savings with NULL add up to at
    -- most the capture. Only the five largest fixes are compared for the same time.
    coalesce(s.change, c.title) AS same_stretch_as,
    k.is_bound,  -- True if saves_ns is an upper bound, not the expected saving.
    -- Caveats for saves_ns; NULL if there is none.
    nullif(concat_ws('; ', nullif(k.caveat, ''), f.caveat), '') AS caveat
FROM _capture_fix_rows AS f
JOIN fix_kinds AS k ON k.fix = f.fix
JOIN changes AS t ON t.capture_id = f.capture_id AND t.place = f.place
LEFT JOIN changes AS s ON s.capture_id = f.capture_id AND s.place = f.same_place
LEFT JOIN cause_kinds AS c ON c.cause = f.same_cause
